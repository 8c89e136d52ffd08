package operate

import (
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// kinds are the kinds in the example, as defined by Kubernetes.
func kinds() map[string]any {
	return map[string]any{
		"apps/v1 StatefulSet":                new(appsv1.StatefulSet),
		"v1 Service":                         new(corev1.Service),
		"networking.k8s.io/v1 Ingress":       new(networkingv1.Ingress),
		"networking.k8s.io/v1 NetworkPolicy": new(networkingv1.NetworkPolicy),
		"policy/v1 PodDisruptionBudget":      new(policyv1.PodDisruptionBudget),
	}
}

// strictly decodes a manifest; a member that its kind does not have, or has with
// another type, is an error.
func strictly(document string) error {
	var head metav1.TypeMeta
	if err := yaml.Unmarshal([]byte(document), &head); err != nil {
		return err
	}
	return yaml.UnmarshalStrict([]byte(document), kinds()[head.APIVersion+" "+head.Kind])
}

func TestKubernetesKnowsEveryMemberOfTheExample(t *testing.T) {
	text := file(t, "deploy/kubernetes.yaml")
	for _, document := range strings.Split(text, "\n---\n") {
		if err := strictly(document); err != nil {
			t.Errorf("%v, in\n%s", err, document)
		}
	}
	set, _, _ := strings.Cut(text, "\n---\n")
	for _, wrong := range [][2]string{{"periodSeconds:", "periodSecond:"}, {"replicas: 2", "replicas: two"}, {"name: reseat\n", "name: reseat\nnoSuch: 1\n"}} {
		if strictly(replaced(t, set, wrong[0], wrong[1])) == nil {
			t.Errorf("%q is taken", wrong[1])
		}
	}
}

// In a cluster all pods share one network: the example trusts few proxies, restricts
// access to the admin port, and runs one image.
func TestKubernetesExampleLimitsTrust(t *testing.T) {
	text := file(t, "deploy/kubernetes.yaml")
	for _, m := range regexp.MustCompile(`--trusted-proxy=(\S+)`).FindAllStringSubmatch(text, -1) {
		if p, err := netip.ParsePrefix(m[1]); err != nil || p.Bits() < 24 {
			t.Errorf("--trusted-proxy=%s: %v, want a network of few", m[1], err)
		}
	}
	for _, m := range regexp.MustCompile(`image: (\S+)`).FindAllStringSubmatch(text, -1) {
		if !regexp.MustCompile(`@sha256:[0-9a-f]{64}$`).MatchString(m[1]) {
			t.Errorf("image %s has no digest", m[1])
		}
	}
	if strings.Contains(text, "nginx.ingress.kubernetes.io") {
		t.Error("the example needs ingress-nginx, which is retired")
	}
	var policy networkingv1.NetworkPolicy
	for _, document := range strings.Split(text, "\n---\n") {
		if strings.Contains(document, "kind: NetworkPolicy") {
			if err := yaml.UnmarshalStrict([]byte(document), &policy); err != nil {
				t.Fatal(err)
			}
		}
	}
	ports := map[string]int{}
	for _, rule := range policy.Spec.Ingress {
		if len(rule.From) == 0 {
			t.Error("a rule lets everybody in")
		}
		for _, from := range rule.From {
			if from.IPBlock != nil || from.PodSelector == nil && (from.NamespaceSelector == nil || len(from.NamespaceSelector.MatchLabels) == 0) {
				t.Errorf("a rule lets in more than the pods of a namespace: %+v", from)
			}
		}
		for _, p := range rule.Ports {
			ports[p.Port.String()]++
		}
	}
	if policy.Spec.PodSelector.MatchLabels["app"] != "reseat" || ports["play"] != 1 || ports["admin"] != 1 ||
		!slices.Contains(policy.Spec.PolicyTypes, networkingv1.PolicyTypeIngress) {
		t.Errorf("the policy is for %+v, %v", policy.Spec.PodSelector, ports)
	}
}

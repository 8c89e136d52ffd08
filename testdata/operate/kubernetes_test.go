package operate

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// kinds are those of the example, as Kubernetes itself defines them.
func kinds() map[string]any {
	return map[string]any{
		"apps/v1 StatefulSet":           new(appsv1.StatefulSet),
		"v1 Service":                    new(corev1.Service),
		"networking.k8s.io/v1 Ingress":  new(networkingv1.Ingress),
		"policy/v1 PodDisruptionBudget": new(policyv1.PodDisruptionBudget),
	}
}

// strictly decodes what stands in a manifest; a member that its kind does not
// have, or has with another type, is an error.
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

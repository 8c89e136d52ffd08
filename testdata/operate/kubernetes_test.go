package operate

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// kinds are the kinds in the examples, as defined by Kubernetes.
func kinds() map[string]any {
	return map[string]any{
		"apps/v1 Deployment":                 new(appsv1.Deployment),
		"apps/v1 StatefulSet":                new(appsv1.StatefulSet),
		"v1 Service":                         new(corev1.Service),
		"networking.k8s.io/v1 Ingress":       new(networkingv1.Ingress),
		"networking.k8s.io/v1 NetworkPolicy": new(networkingv1.NetworkPolicy),
		"policy/v1 PodDisruptionBudget":      new(policyv1.PodDisruptionBudget),
	}
}

// manifest decodes a file strictly: a member that its kind does not have, or has with another type, is an error.
func manifest(t *testing.T, name string) (objects []any) {
	t.Helper()
	for _, document := range strings.Split(file(t, "deploy/"+name), "\n---\n") {
		var head metav1.TypeMeta
		if err := yaml.Unmarshal([]byte(document), &head); err != nil {
			t.Fatal(err)
		}
		o := kinds()[head.APIVersion+" "+head.Kind]
		if err := yaml.UnmarshalStrict([]byte(document), o); err != nil {
			t.Fatalf("%v, in\n%s", err, document)
		}
		objects = append(objects, o)
	}
	return objects
}

// every returns the objects of a kind in the example.
func every[T any](t *testing.T) (list []*T) {
	t.Helper()
	for _, o := range manifest(t, "kubernetes.yaml") {
		if o, ok := o.(*T); ok {
			list = append(list, o)
		}
	}
	if len(list) == 0 {
		t.Fatalf("there is no %T", *new(T))
	}
	return list
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
	policy := every[networkingv1.NetworkPolicy](t)[0]
	ports, nodes := map[string]int{}, 0
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
			if p.Port.String() == "node" && len(rule.Ports) == 1 && len(rule.From) == 1 && rule.From[0].NamespaceSelector == nil && rule.From[0].PodSelector.MatchLabels["app"] == "reseat" {
				nodes++
			}
		}
	}
	if policy.Spec.PodSelector.MatchLabels["app"] != "reseat" || ports["play"] != 1 || ports["admin"] != 1 || ports["node"] != 1 || nodes != 1 ||
		!slices.Contains(policy.Spec.PolicyTypes, networkingv1.PolicyTypeIngress) {
		t.Errorf("the policy is for %+v, %v", policy.Spec.PodSelector, ports)
	}
}

// natsPassword is as the example's command makes it.
const natsPassword = "p5e10" + "0123456789abcdef0123456789abcdef0123456789"

// chartConfig is what the NATS project's chart makes of nats-values.yaml: config.merge as JSON, with what
// stands in << >> as it is. The rest is for the chart.
func chartConfig(t *testing.T) string {
	t.Helper()
	var values struct {
		Config struct{ Merge map[string]any }
	}
	if err := yaml.Unmarshal([]byte(file(t, "deploy/nats-values.yaml")), &values); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(values.Config.Merge)
	if err != nil {
		t.Fatal(err)
	}
	plain := strings.NewReplacer(`\u003c`, "<", `\u003e`, ">").Replace(string(text))
	config := regexp.MustCompile(`"<< (.*?) >>"`).ReplaceAllString(plain, "$1")
	if !strings.Contains(config, "$NATS_PASSWORD") {
		t.Fatalf("no password in %s", config)
	}
	t.Setenv("NATS_PASSWORD", natsPassword)
	return config
}

// The values for NATS belong to the manifest: three servers that keep memory and files, one user
// whose password both read from one Secret, and the Service that --cluster names.
func TestValuesForNATSMatchTheManifest(t *testing.T) {
	type env struct {
		ValueFrom struct{ SecretKeyRef struct{ Name, Key string } }
	}
	var values struct {
		Config struct {
			Cluster struct {
				Enabled  bool
				Replicas int
			}
			JetStream struct {
				Enabled     bool
				FileStore   struct{ PVC struct{ Size string } }
				MemoryStore struct {
					Enabled bool
					MaxSize string
				}
			}
		}
		Container struct {
			Env       map[string]any
			Resources corev1.ResourceRequirements
		}
	}
	text := file(t, "deploy/nats-values.yaml")
	if err := yaml.Unmarshal([]byte(text), &values); err != nil {
		t.Fatal(err)
	}
	servers, js := values.Config.Cluster, values.Config.JetStream
	if !servers.Enabled || servers.Replicas != 3 || !js.Enabled || js.FileStore.PVC.Size != "10Gi" || !js.MemoryStore.Enabled || js.MemoryStore.MaxSize != "1Gi" {
		t.Errorf("%+v", values.Config)
	}
	limit := values.Container.Resources.Limits.Memory()
	if limit.CmpInt64(2<<30) < 0 {
		t.Errorf("%v of memory for a memory store of %s", limit, js.MemoryStore.MaxSize)
	}
	_, c := pods(t)
	var password *corev1.SecretKeySelector
	var url string
	for _, e := range c.Env {
		switch e.Name {
		case "NATS_PASSWORD":
			password = e.ValueFrom.SecretKeyRef
		case "RESEAT_CLUSTER":
			url = e.Value
		}
	}
	var own env
	encoded, err := json.Marshal(values.Container.Env["NATS_PASSWORD"])
	if err == nil {
		err = json.Unmarshal(encoded, &own)
	}
	if ref := own.ValueFrom.SecretKeyRef; err != nil || password == nil || ref.Name != password.Name || ref.Key != password.Key {
		t.Errorf("NATS reads its password from %+v, the gateway from %+v", ref, password)
	}
	release := regexp.MustCompile(`helm install (\S+) nats/nats --values nats-values\.yaml`).FindStringSubmatch(file(t, "deploy/kubernetes.yaml"))
	if release == nil || url != "plaintext://reseat:$(NATS_PASSWORD)@"+release[1]+":4222" {
		t.Errorf("%q: the gateways connect to %q", release, url)
	}
}

func TestInPlaceManifestHandsOverAndIdles(t *testing.T) {
	set, ok := manifest(t, "kubernetes-in-place.yaml")[0].(*appsv1.StatefulSet)
	if !ok {
		t.Fatal("it is no StatefulSet")
	}
	bin, err := filepath.Abs(program)
	if err != nil {
		t.Fatal(err)
	}
	dir, game, listen, admin := secrets(t), newGame(t, 5*time.Millisecond), "127.0.0.1:"+freePort(t), "127.0.0.1:"+freePort(t)
	for _, name := range []string{"token.key", "admin-token", "viewer-token"} {
		os.Chmod(filepath.Join(dir, name), 0o600)
	}
	fit := strings.NewReplacer("/run/reseat", dir, "/etc/reseat", dir, `/reseat "$@"`, bin+` "$@"`, "--listen=:8080", "--listen="+listen, "--admin=:8081", "--admin="+admin,
		"ws://game:9000", game.url(), "--drain=30s", "--drain=1s")
	var commands [][]string
	for _, c := range set.Spec.Template.Spec.Containers {
		var words []string
		for _, w := range append(append([]string(nil), c.Command...), c.Args...) {
			words = append(words, fit.Replace(w))
		}
		commands = append(commands, words)
	}
	if len(commands) != 2 {
		t.Fatalf("%d containers, want two", len(commands))
	}
	blue := startShell(t, "", commands[0]...)
	eventually(t, "blue serves", func() bool { return upgradeState(admin) == "none" })
	p := (&player{url: "ws://" + listen, header: http.Header{"Origin": {"https://play.example"}}}).join(t)
	p.next()
	green := startShell(t, "", commands[1]...)
	eventually(t, "green has taken over", func() bool { return upgradeState(admin) == "ok" })
	for range 20 {
		p.next()
	}
	if p.resumes > 0 {
		t.Errorf("the player was disconnected %d times", p.resumes)
	}
	select {
	case <-blue.ended:
		t.Fatalf("blue has ended, Kubernetes would start it again: %v", blue.err)
	case <-green.ended:
		t.Fatalf("green has ended: %v", green.err)
	default:
	}
	p.tell("bye")
	for name, s := range map[string]*shell{"green": green, "blue": blue} {
		s.Process.Signal(syscall.SIGTERM)
		if <-s.ended; s.err != nil {
			t.Errorf("%s: %v at the end of the pod", name, s.err)
		}
	}
}

// upgradeState asks the gateway at an admin address for its last upgrade. It is empty if
// nobody answers.
func upgradeState(admin string) string {
	r, err := http.NewRequest("GET", "http://"+admin+"/api/v1/upgrade", nil)
	if err != nil {
		return ""
	}
	r.Header.Set("Authorization", "Bearer "+strings.Repeat("b", 32))
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	var u struct{ State string }
	json.NewDecoder(resp.Body).Decode(&u)
	return u.State
}

// A service passes TCP connections on to its backends in turns, as a Service of Kubernetes does: it knows no
// HTTP, keeps no client where it was, and tries no other backend.
type service struct {
	net.Listener
	mu       sync.Mutex
	backends []string
	next     int
}

func newService(t *testing.T) *service {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	s := &service{Listener: ln}
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go s.pass(c)
		}
	}()
	return s
}

func (s *service) pass(c net.Conn) {
	defer c.Close()
	s.mu.Lock()
	backend := s.backends[s.next%len(s.backends)]
	s.next++
	s.mu.Unlock()
	b, err := net.Dial("tcp", backend)
	if err != nil {
		return
	}
	defer b.Close()
	done := make(chan struct{})
	go func() {
		io.Copy(b, c)
		b.Close()
		close(done)
	}()
	io.Copy(c, b)
	c.Close()
	<-done
}

// replace replaces one backend by another, or adds it.
func (s *service) replace(old, backend string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.backends = slices.DeleteFunc(append(s.backends, backend), func(b string) bool { return b == old })
}

// A rollout is a Deployment of the example in the course of a rolling update.
type rollout struct {
	*cluster
	service *service
	args    []string
	fit     *strings.Replacer
	started int
}

func newRollout(t *testing.T) *rollout {
	t.Helper()
	r := &rollout{cluster: &cluster{T: t, nats: startNATSWith(t, chartConfig(t)), game: newGame(t, 5*time.Millisecond)}, service: newService(t)}
	_, c := pods(t)
	dir := secrets(t)
	r.fit = strings.NewReplacer("/etc/reseat", dir, "ws://game:9000", r.game.url(), "@nats:4222", "@127.0.0.1:"+r.nats.port,
		"--listen=:8080", "--listen=127.0.0.1:0", "--admin=:8081", "--admin=127.0.0.1:0")
	args, environ := expanded(c, map[string]string{"NATS_PASSWORD": natsPassword})
	for _, a := range args { // without tokens the test may read metrics
		if !strings.HasPrefix(a, "--admin-token-file=") && !strings.HasPrefix(a, "--viewer-token-file=") {
			r.args = append(r.args, r.fit.Replace(a))
		}
	}
	for _, e := range environ {
		name, value, _ := strings.Cut(r.fit.Replace(e), "=")
		t.Setenv(name, value)
	}
	return r
}

// pod starts a pod, and waits until it is ready. Each has an address of its own, so here a port.
func (r *rollout) pod() *gateway {
	r.Helper()
	r.started++
	node := freePort(r.T)
	fit := strings.NewReplacer("--node-listen=:8082", "--node-listen=127.0.0.1:"+node, "$(POD_IP):8082", "127.0.0.1:"+node, "$(POD_NAME)", fmt.Sprint("reseat-", r.started))
	var args []string
	for _, a := range r.args {
		args = append(args, fit.Replace(a))
	}
	g := start(r.T, args...)
	g.get("/readyz")
	return g
}

func (r *rollout) player() *player {
	r.Helper()
	return (&player{url: "ws://" + r.service.Addr().String(), header: http.Header{"Origin": {"https://play.example"}}}).join(r.T)
}

// All pods are replaced, one after another, while players resume all the time. Each resume lands anywhere.
// No session is lost, and the game server notices nothing.
func TestRollingUpdateLosesNoSession(t *testing.T) {
	r := newRollout(t)
	for range 3 {
		g := r.pod()
		r.nodes = append(r.nodes, g)
		r.service.replace("", g.addr)
	}
	for _, g := range r.nodes {
		r.wantNodes(g, "up", 3)
	}
	var players []*player
	var rounds []*atomic.Int64 // resumes of each
	var busy sync.WaitGroup
	stop := make(chan struct{})
	play := func() {
		p, n := r.player(), new(atomic.Int64)
		players, rounds = append(players, p), append(rounds, n)
		busy.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					p.counts(3)
					p.say("still here")
					p.resume()
					n.Add(1)
				}
			}
		})
	}
	for range 12 {
		play()
	}
	old := slices.Clone(r.nodes)
	for i, was := range old {
		r.nodes[i] = r.pod()
		r.service.replace(was.addr, r.nodes[i].addr)
		was.cmd.Process.Signal(syscall.SIGTERM)
		play()
	}
	for _, g := range r.nodes {
		r.wantNodes(g, "draining", 3)
	}
	for _, n := range rounds {
		before := n.Load()
		eventually(t, "all resume five times without the old pods", func() bool { return n.Load() >= before+5 })
	}
	close(stop)
	busy.Wait()
	forwarded := 0.0
	for _, g := range r.nodes {
		forwarded += g.metric("reseat_forwards_total", "out")
	}
	if forwarded < 12 {
		t.Errorf("%v resumes were passed on: the sessions of the old pods were reached otherwise", forwarded)
	}
	for _, p := range players {
		p.counts(3)
		p.tell("bye")
	}
	if n := len(r.game.joined()); n != len(players) {
		t.Errorf("the game server had %d connections for %d players", n, len(players))
	}
	for _, g := range old {
		g.says("shutdown.finished")
	}
	for _, g := range r.nodes {
		r.wantNodes(g, "gone", 3)
	}
}

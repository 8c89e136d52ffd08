package operate

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
)

// afterDrain is what a shutdown needs beyond --drain: for closing handshakes, event
// streams and the log.
const afterDrain = 10 * time.Second

// check runs reseat check with the flags or the file of an example. The game server
// answers, and the secrets exist.
func check(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command(program, append([]string{"check"}, args...)...).CombinedOutput(); err != nil {
		t.Errorf("reseat check %q: %v\n%s", args, err, out)
	}
}

// upstream returns an address that accepts connections.
func upstream(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln.Addr().String()
}

// secrets returns a directory with the secret files that the examples name.
func secrets(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for i, name := range []string{"token.key", "admin-token", "viewer-token"} {
		write(t, filepath.Join(dir, name), strings.Repeat(string(rune('a'+i)), 32))
	}
	return dir
}

// setting returns the value of a setting in reseat.toml or of a line of the unit, as written there.
func setting(t *testing.T, text, name string) string {
	t.Helper()
	m := regexp.MustCompile(`(?m)^` + name + ` ?= ?"?([^"\n]+)"?$`).FindStringSubmatch(text)
	if m == nil {
		t.Fatalf("there is no %s in\n%s", name, text)
	}
	return m[1]
}

func duration(t *testing.T, s string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestUnitMatchesItsConfigFile(t *testing.T) {
	unit, config := file(t, "deploy/reseat.service"), file(t, "deploy/reseat.toml")
	dir := secrets(t)
	name := write(t, filepath.Join(dir, "reseat.toml"), replaced(t, config, "/etc/reseat", dir, "127.0.0.1:9000", upstream(t)))
	args := strings.Fields(replaced(t, setting(t, unit, "ExecStart"), "/etc/reseat/reseat.toml", name))
	check(t, args[1:]...)
	if got, want := duration(t, setting(t, unit, "TimeoutStopSec")), duration(t, setting(t, config, "drain"))+afterDrain; got != want {
		t.Errorf("TimeoutStopSec=%v, want %v: the drain and what comes after it", got, want)
	}
	files, err1 := strconv.Atoi(setting(t, unit, "LimitNOFILE"))
	most, err2 := strconv.Atoi(setting(t, config, "max-sessions"))
	if errors.Join(err1, err2) != nil || files*9/10 < 2*most {
		t.Errorf("LimitNOFILE=%d is not enough for %d sessions", files, most)
	}
}

func TestUnitIsValidForSystemd(t *testing.T) {
	tool, err := exec.LookPath("systemd-analyze")
	if err != nil {
		absent(t, "there is no systemd-analyze here")
	}
	abs, err := filepath.Abs(program)
	if err != nil {
		t.Fatal(err)
	}
	unit := replaced(t, file(t, "deploy/reseat.service"), "/usr/local/bin/reseat", abs, "User=reseat", "User=daemon", "Group=reseat", "Group=daemon")
	name := write(t, filepath.Join(t.TempDir(), "reseat.service"), unit)
	if out, err := exec.Command(tool, "verify", name).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%v: %s", err, out)
	}
}

// expanded returns a container's arguments and its settings in the environment, with what
// Kubernetes substitutes for $(NAME).
func expanded(c *corev1.Container, values map[string]string) (args, environ []string) {
	expand := func(s string) string {
		return regexp.MustCompile(`\$\((\w+)\)`).ReplaceAllStringFunc(s, func(m string) string {
			if v, ok := values[m[2:len(m)-1]]; ok {
				return v
			}
			return m // as Kubernetes does
		})
	}
	for _, a := range c.Args {
		args = append(args, expand(a))
	}
	for _, e := range c.Env {
		if strings.HasPrefix(e.Name, "RESEAT_") {
			environ = append(environ, e.Name+"="+expand(e.Value))
		}
	}
	return args, environ
}

// pods is the Deployment of the example, and its container.
func pods(t *testing.T) (*appsv1.Deployment, *corev1.Container) {
	t.Helper()
	d := every[appsv1.Deployment](t)[0]
	if len(d.Spec.Template.Spec.Containers) != 1 {
		t.Fatalf("%+v", d)
	}
	return d, &d.Spec.Template.Spec.Containers[0]
}

func TestKubernetesExampleMatchesTheProgram(t *testing.T) {
	set, c := pods(t)
	dir, game, drain := secrets(t), upstream(t), ""
	nats := startNATSWith(t, chartConfig(t))
	node := freePort(t)
	args, environ := expanded(c, map[string]string{"POD_IP": "127.0.0.1", "POD_NAME": "reseat-5d4f-x2", "NATS_PASSWORD": natsPassword})
	var sets []string
	for _, e := range c.Env {
		if e.ValueFrom != nil {
			sets = append(sets, e.Name)
		}
	}
	if want := []string{"POD_NAME", "POD_IP", "NATS_PASSWORD"}; !slices.Equal(sets, want) {
		t.Errorf("Kubernetes sets %q, want %q", sets, want)
	}
	fit := strings.NewReplacer("/etc/reseat", dir, "game:9000", game, "@nats:4222", "@127.0.0.1:"+nats.port, "127.0.0.1:8082", "127.0.0.1:"+node)
	for i, a := range args {
		if d, ok := strings.CutPrefix(a, "--drain="); ok {
			drain = d
		}
		args[i] = fit.Replace(a)
	}
	for i, e := range environ {
		environ[i] = fit.Replace(e)
	}
	cmd := exec.Command(program, append([]string{"check"}, args...)...)
	cmd.Env = append(os.Environ(), environ...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("reseat check: %v\n%s", err, out)
	}
	wantFindings(t, strings.Split(string(out), "\n"), "ok    --cluster nats://127.0.0.1:"+nats.port+": NATS 2.", "ok    NATS user: has all rights", "ok    --node-advertise 127.0.0.1:"+node+": reachable")
	if got, want := time.Duration(*set.Spec.Template.Spec.TerminationGracePeriodSeconds)*time.Second, duration(t, drain)+2*afterDrain; got != want {
		t.Errorf("terminationGracePeriodSeconds is %v, want %v: the drain and what comes after it", got, want)
	}
	if u := set.Spec.Strategy.RollingUpdate; *set.Spec.Replicas != 3 || u.MaxSurge.IntValue() != 1 || u.MaxUnavailable.IntValue() != 0 {
		t.Errorf("%d replicas, %+v: want another pod before one of three is stopped", *set.Spec.Replicas, u)
	}
	ports := map[string]int32{}
	for _, p := range c.Ports {
		ports[p.Name] = p.ContainerPort
		if flag := fmt.Sprint(map[string]string{"play": "--listen=:", "admin": "--admin=:", "node": "--node-listen=:"}[p.Name], p.ContainerPort); !slices.Contains(c.Args, flag) {
			t.Errorf("port %s is %d, and there is no %s", p.Name, p.ContainerPort, flag)
		}
	}
	if want := fmt.Sprint("--node-advertise=$(POD_IP):", ports["node"]); !slices.Contains(c.Args, want) {
		t.Errorf("there is no %s", want)
	}
	g := start(t, "--demo")
	for _, p := range []*corev1.Probe{c.ReadinessProbe, c.LivenessProbe} {
		if port := p.HTTPGet.Port.String(); ports[port] != 8081 {
			t.Errorf("a probe asks port %s, want that of the admin address", port)
		}
		g.get(p.HTTPGet.Path)
	}
	if links := set.Spec.Template.Spec.EnableServiceLinks; links == nil || *links {
		t.Error("a Service named reseat puts RESEAT_PORT into the environment, where RESEAT_ is for settings")
	}
	pods := set.Spec.Template.Labels["app"]
	selected := []string{set.Spec.Selector.MatchLabels["app"], every[policyv1.PodDisruptionBudget](t)[0].Spec.Selector.MatchLabels["app"]}
	for _, service := range every[corev1.Service](t) {
		selected = append(selected, service.Spec.Selector["app"])
		for _, p := range service.Spec.Ports {
			if ports[p.TargetPort.String()] == 0 {
				t.Errorf("the Service %s leads to port %s, which the pods have not", service.Name, p.TargetPort.String())
			}
		}
	}
	if slices.ContainsFunc(selected, func(app string) bool { return app != pods }) {
		t.Errorf("selectors choose %q, the pods are %q", selected, pods)
	}
}

// The docker run flags in the Dockerfile's head comment are valid, and the stop timeout
// exceeds the drain.
func TestDockerfileCommentMatchesTheProgram(t *testing.T) {
	head, _, _ := strings.Cut(file(t, "deploy/Dockerfile"), "FROM ")
	run := regexp.MustCompile(`(?s)#   docker run (.*) reseat \\\n(.*?)\n#\n`).FindStringSubmatch(head)
	if run == nil {
		t.Fatal(head)
	}
	own := strings.Fields(strings.NewReplacer("#", "", "\\", "").Replace(replaced(t, run[2], "/etc/reseat", secrets(t), "game:9000", upstream(t))))
	check(t, own...)
	wait := regexp.MustCompile(`--stop-timeout (\d+)`).FindStringSubmatch(run[1])
	i := slices.Index(own, "--drain")
	if wait == nil || i < 0 || duration(t, wait[1]+"s") != duration(t, own[i+1])+afterDrain {
		t.Errorf("docker waits for %q, the drain is in %q", wait, own)
	}
	for _, flag := range []string{"--admin :8081", "-p 127.0.0.1:8081:8081"} {
		if !strings.Contains(head, flag) {
			t.Errorf("the admin address is not reached, or by all: want %s", flag)
		}
	}
}

// Building the image takes a foreign base image and a tool that few machines have. This
// test checks its contents: the binary, built by the same command, alone in an empty
// root.
func TestImageContainsAllThatTheProgramNeeds(t *testing.T) {
	docker := file(t, "deploy/Dockerfile")
	command := regexp.MustCompile(`(?m)^RUN (CGO_ENABLED=0 go build .*)$`).FindStringSubmatch(docker)
	user := regexp.MustCompile(`(?m)^USER (\d+):(\d+)$`).FindStringSubmatch(docker)
	if command == nil || user == nil || !strings.Contains(docker, "FROM scratch") {
		t.Fatal(docker)
	}
	root := t.TempDir()
	os.Chmod(filepath.Dir(root), 0o755)
	os.Chmod(root, 0o755)
	build := exec.Command("sh", "-c", replaced(t, command[1], "${VERSION}", "v1.2.3", "${COMMIT}", "0123abcd", "-o /reseat", "-o "+root+"/reseat"))
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	bin, err := elf.Open(root + "/reseat")
	if err != nil {
		t.Fatal(err)
	}
	defer bin.Close()
	for _, p := range bin.Progs {
		if p.Type == elf.PT_INTERP {
			t.Error("the binary wants a loader, which an empty image has not")
		}
	}
	cmd := exec.Command("/reseat", "--version")
	cmd.Path, cmd.Dir = "/reseat", "/"
	uid, _ := strconv.Atoi(user[1])
	if os.Getuid() != 0 {
		absent(t, "that takes root: an empty root directory")
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	if out, err := cmd.CombinedOutput(); err != nil || !bytes.HasPrefix(out, []byte("reseat v1.2.3 (commit 0123abcd) ")) {
		t.Errorf("%v: %s", err, out)
	}
	check := exec.Command("/reseat", "check", "--demo", "--listen=:8080", "--admin=off")
	check.Path, check.Dir, check.SysProcAttr = "/reseat", "/", cmd.SysProcAttr
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// Flags of other programs in the docs.
var foreign = []string{"--system", "--no-create-home", "--shell", "--from-file", "--from-literal", "--from",
	"--kill-whom", "--patch", "--header", "--time", "--name", "--build-arg", "--read-only", "--values", "--cap-drop", "--ulimit", "--stop-timeout"}

func TestEveryFlagInTheDocsExists(t *testing.T) {
	help, err := exec.Command(program, "--help").Output()
	if err != nil {
		t.Fatal(err)
	}
	pages, err := filepath.Glob(docs + "deploy/*")
	if err != nil || len(pages) < 8 {
		t.Fatal(pages, err)
	}
	for _, name := range append(pages, docs+"operating.md", docs+"recipes.md") {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, flag := range regexp.MustCompile(`(?:^|[\s`+"`"+`(\["])(--[a-z][a-z-]*)`).FindAllSubmatch(text, -1) {
			f := string(flag[1])
			if !slices.Contains(foreign, f) && !regexp.MustCompile(`(?m)^\s+`+f+`\b|`+f+` `).Match(help) {
				t.Errorf("%s names %s, which there is not", filepath.Base(name), f)
			}
		}
	}
}

package operate

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
)

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

package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"reseat/gateway/faults"
)

// askTime limits one call of the control API.
const askTime = 10 * time.Second

// rehearse implements reseat rehearse: it replays a plan of faults against all sessions of a gateway
// that runs with --dev. The exit status is 0 after the plan, also if it was interrupted, 1 if the
// gateway does not take it, and 2 for invalid arguments.
func rehearse(args []string, stdout, stderr io.Writer, signals <-chan os.Signal) int {
	r := rehearsal{out: stdout}
	set := flag.NewFlagSet("reseat rehearse", flag.ContinueOnError)
	set.SetOutput(stderr)
	file := set.String("plan", "", "TOML file with [[fault]] tables")
	set.StringVar(&r.admin, "admin", "http://127.0.0.1:8081", "URL of the gateway's admin address")
	token := set.String("admin-token-file", "", "file whose first line is a token of the gateway's --admin-token-file")
	if err := set.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return 0
		}
		return 2
	}
	plan, err := r.open(*file, *token)
	if err != nil {
		return fail(stderr, 2, err)
	}
	ctx, stop := untilSignal(signals)
	defer stop()
	if err := r.run(ctx, plan); err != nil {
		return fail(stderr, 1, err)
	}
	return 0
}

// A rehearsal is a run of a plan.
type rehearsal struct {
	admin, token string
	out          io.Writer
}

// open reads the files, and checks the address.
func (r *rehearsal) open(file, token string) ([]faults.Planned, error) {
	if file == "" {
		return nil, errors.New("--plan: want a file")
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("--plan: %w", err)
	}
	plan, err := faults.ParsePlan(text)
	if err != nil {
		return nil, fmt.Errorf("--plan %s: %w", file, err)
	}
	if u, err := url.Parse(r.admin); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("--admin: want a URL such as http://127.0.0.1:8081, got %.100q", r.admin)
	}
	if token != "" {
		text, err := os.ReadFile(token)
		if err != nil {
			return nil, fmt.Errorf("--admin-token-file: %w", err)
		}
		first, _, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
		r.token = strings.TrimSpace(first)
	}
	return plan, nil
}

// run begins each fault at its time, and waits until the last one is over. If ctx ends, it ends all
// faults.
func (r *rehearsal) run(ctx context.Context, plan []faults.Planned) error {
	// Without --dev it conflicts, and else there is no such session: known before the first player comes.
	if status, err := r.call(http.MethodDelete, "/sessions/-/faults", nil, nil); status == http.StatusConflict {
		return err
	}
	begun := time.Now()
	end := begun
	for _, p := range plan {
		if !waitUntil(ctx, begun.Add(p.At)) {
			return r.all(http.MethodDelete, nil, "ended", begun)
		}
		if err := r.all(http.MethodPost, p.Body, p.Name, begun); err != nil {
			return err
		}
		if over := begun.Add(p.At + p.Lasts()); over.After(end) {
			end = over
		}
	}
	if !waitUntil(ctx, end) {
		return r.all(http.MethodDelete, nil, "ended", begun)
	}
	fmt.Fprintf(r.out, "%s over\n", since(begun))
	return nil
}

// waitUntil reports false if ctx ends before.
func waitUntil(ctx context.Context, t time.Time) bool {
	timer := time.NewTimer(time.Until(t))
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

func since(t time.Time) string { return time.Since(t).Round(time.Second).String() }

// all begins a fault of every session, or ends all faults.
func (r *rehearsal) all(method string, body []byte, name string, begun time.Time) error {
	took, cursor := 0, ""
	for {
		var page struct {
			Sessions []struct{ ID, State string }
			Next     string
		}
		if _, err := r.call(http.MethodGet, "/sessions?limit=1000&cursor="+cursor, nil, &page); err != nil {
			return err
		}
		for _, s := range page.Sessions {
			status, err := r.call(method, "/sessions/"+s.ID+"/faults", body, nil)
			if err != nil && status != http.StatusNotFound && (status != http.StatusConflict || s.State == "attached") {
				return err // others have just ended, or have no connection to cut
			}
			if err == nil {
				took++
			}
		}
		if cursor = page.Next; cursor == "" {
			break
		}
	}
	fmt.Fprintf(r.out, "%s %s: %d sessions\n", since(begun), name, took)
	return nil
}

// call calls the control API. The status is 0 if there was no answer.
func (r *rehearsal) call(method, path string, body []byte, into any) (status int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), askTime)
	defer cancel()
	ask, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(r.admin, "/")+"/api/v1"+path, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	if r.token != "" {
		ask.Header.Set("Authorization", "Bearer "+r.token)
	}
	answer, err := http.DefaultClient.Do(ask)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, 16<<20))
	switch {
	case err != nil:
	case answer.StatusCode >= 300:
		var why struct{ Detail string }
		json.Unmarshal(text, &why)
		err = fmt.Errorf("%s %s: %s: %.200s", method, path, answer.Status, why.Detail)
	case into != nil:
		err = json.Unmarshal(text, into)
	}
	return answer.StatusCode, err
}

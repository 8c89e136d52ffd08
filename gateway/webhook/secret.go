package webhook

import (
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"reseat/tokens/keyfile"
)

const (
	// leastSecret and mostSecret are the bytes of a symmetric secret (Standard
	// Webhooks, "Signature scheme").
	leastSecret, mostSecret = 24, 64
	maxSecretFile           = 16 << 10
	// mostSecrets is how many may stand in a file: each is a signature more in a
	// header of every post.
	mostSecrets = 8
	// oldSigns is for how long a secret that a Reload removed signs beside the others.
	oldSigns = 24 * time.Hour
	// maxOld is how many of those there may be: four changes of a whole file.
	maxOld = 4 * mostSecrets
)

// Secrets are what posts are signed with: those of the file, and each that was in it
// before for a day after its removal. They may be used by several goroutines at once.
type Secrets struct {
	file string

	mu      sync.Mutex
	present []secret
	old     []oldSecret
}

// An oldSecret is not in the file any more, and signs until then.
type oldSecret struct {
	secret
	until time.Time
}

// A secret is a signer, and its text to know it again by.
type secret struct {
	text string
	sign *standardwebhooks.Webhook
}

// LoadSecrets reads a file of secrets, one a line: whsec_ and the base64 of 24 to
// 64 random bytes. Its errors name the flag, and repeat nothing of a secret.
func LoadSecrets(file string) (*Secrets, error) {
	s := &Secrets{file: file}
	if err := s.Reload(time.Time{}); err != nil {
		return nil, err
	}
	return s, nil
}

// Reload reads the file again. A secret that was in it and is not any more signs beside
// the rest until a day after now, however often the file changes meanwhile. On an error
// all stays as it was.
func (s *Secrets) Reload(now time.Time) error {
	fresh, err := readSecrets(s.file)
	if err != nil {
		return fmt.Errorf("--webhook-secret-file: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var old []oldSecret
	for _, was := range s.old {
		if now.Before(was.until) && !contains(fresh, was.text) {
			old = append(old, was)
		}
	}
	for _, was := range s.present {
		if !contains(fresh, was.text) {
			old = append(old, oldSecret{was, now.Add(oldSigns)})
		}
	}
	if len(old) > maxOld {
		return fmt.Errorf("--webhook-secret-file: %d secrets were removed within a day, and each still signs; want at most %d: keep some for now", len(old), maxOld)
	}
	s.present, s.old = fresh, old
	return nil
}

// Count is how many secrets the file held.
func (s *Secrets) Count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.present)
}

// sign makes the header of a post: a signature by each secret, the file's first
// one first.
func (s *Secrets) sign(id string, now time.Time, body []byte) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	signers := slices.Clone(s.present)
	for _, was := range s.old {
		if now.Before(was.until) {
			signers = append(signers, was.secret)
		}
	}
	list := make([]string, len(signers))
	for i, by := range signers {
		var err error
		if list[i], err = by.sign.Sign(id, now, body); err != nil {
			return "", fmt.Errorf("sign: %w", err)
		}
	}
	return strings.Join(list, " "), nil
}

func contains(list []secret, text string) bool {
	for _, s := range list {
		if s.text == text {
			return true
		}
	}
	return false
}

func readSecrets(file string) (list []secret, err error) {
	raw, err := keyfile.Read(file, maxSecretFile)
	if err != nil {
		return nil, fmt.Errorf("want a file of secrets, got %.100q: %w", file, err)
	}
	n := 0
	for line := range strings.Lines(string(raw)) {
		n++
		text := strings.TrimPrefix(strings.TrimSpace(line), "whsec_")
		if text == "" {
			continue
		}
		s, err := parseSecret(text)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		list = append(list, s)
	}
	if len(list) == 0 || len(list) > mostSecrets {
		return nil, fmt.Errorf("want 1 to %d secrets, one a line, got %d", mostSecrets, len(list))
	}
	return list, nil
}

// parseSecret takes what stands behind whsec_.
func parseSecret(text string) (secret, error) {
	if strings.HasPrefix(text, "whsk_") || strings.HasPrefix(text, "whpk_") {
		return secret{}, errors.New("want a secret that begins with whsec_, got a key of a pair")
	}
	raw, err := base64.StdEncoding.DecodeString(text)
	switch {
	case err != nil:
		return secret{}, errors.New("want whsec_ and base64, as `openssl rand -base64 32` prints it")
	case len(raw) < leastSecret || len(raw) > mostSecret:
		return secret{}, fmt.Errorf("want the base64 of %d to %d random bytes, got %d", leastSecret, mostSecret, len(raw))
	}
	by, err := standardwebhooks.NewWebhookRaw(raw)
	return secret{text, by}, err
}

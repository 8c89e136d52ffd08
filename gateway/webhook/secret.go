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
	// minSecret and maxSecret are the bytes of a symmetric secret (Standard
	// Webhooks, "Signature scheme").
	minSecret, maxSecret = 24, 64
	maxSecretFile        = 16 << 10
	// maxSecrets bounds a file: each secret adds a signature to a
	// header of every post.
	maxSecrets = 8
	// A secret that a Reload removed keeps signing for retiredTime.
	retiredTime = 24 * time.Hour
	// maxOld bounds those: four changes of a whole file.
	maxOld = 4 * maxSecrets
)

// Secrets sign posts: the secrets of the file, and each removed one for a day after
// its removal. All methods may be called from any goroutine.
type Secrets struct {
	file string

	mu      sync.Mutex
	present []secret
	old     []oldSecret
}

// An oldSecret is no longer in the file, and signs until then.
type oldSecret struct {
	secret
	until time.Time
}

// A secret is a signer and the text that identifies it.
type secret struct {
	text string
	sign *standardwebhooks.Webhook
}

// LoadSecrets reads a file of secrets, one a line: whsec_ and the base64 of 24 to
// 64 random bytes. Its errors name the flag and contain nothing of a secret.
func LoadSecrets(file string) (*Secrets, error) {
	s := &Secrets{file: file}
	if err := s.Reload(time.Time{}); err != nil {
		return nil, err
	}
	return s, nil
}

// Reload reads the file again. A secret that is no longer in it keeps signing until a
// day after now, however often the file changes meanwhile. On an error nothing
// changes.
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
			old = append(old, oldSecret{was, now.Add(retiredTime)})
		}
	}
	if len(old) > maxOld {
		return fmt.Errorf("--webhook-secret-file: %d secrets were removed within a day, and each still signs; want at most %d: keep some for now", len(old), maxOld)
	}
	s.present, s.old = fresh, old
	return nil
}

// Count returns how many secrets the file has.
func (s *Secrets) Count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.present)
}

// sign returns the signature header of a post: one signature per secret, in the
// order of the file.
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
	return slices.ContainsFunc(list, func(s secret) bool { return s.text == text })
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
	if len(list) == 0 || len(list) > maxSecrets {
		return nil, fmt.Errorf("want 1 to %d secrets, one a line, got %d", maxSecrets, len(list))
	}
	return list, nil
}

// parseSecret reads what follows whsec_.
func parseSecret(text string) (secret, error) {
	if strings.HasPrefix(text, "whsk_") || strings.HasPrefix(text, "whpk_") {
		return secret{}, errors.New("want a secret that begins with whsec_, got a key of a pair")
	}
	raw, err := base64.StdEncoding.DecodeString(text)
	switch {
	case err != nil:
		return secret{}, errors.New("want whsec_ and base64, as `openssl rand -base64 32` prints it")
	case len(raw) < minSecret || len(raw) > maxSecret:
		return secret{}, fmt.Errorf("want the base64 of %d to %d random bytes, got %d", minSecret, maxSecret, len(raw))
	}
	by, err := standardwebhooks.NewWebhookRaw(raw)
	return secret{text, by}, err
}

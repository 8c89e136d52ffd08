package tokens

import (
	"errors"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"reseat/tokens/internal/jwttest"
)

func TestGeneratedKeyIsUnique(t *testing.T) {
	first, second := load(t, Options{Now: new(clock).now}), load(t, Options{Now: new(clock).now})
	if !first.Ephemeral() || first.SigningKeyID() == second.SigningKeyID() {
		t.Errorf("ephemeral %v, kids %q and %q, want two different ephemeral keys", first.Ephemeral(), first.SigningKeyID(), second.SigningKeyID())
	}
	token := issue(t, first, claims())
	if header, _ := decoded(t, token); header["alg"] != "HS256" {
		t.Errorf("alg %v, want HS256", header["alg"])
	}
	if _, err := second.Verify(token); !errors.Is(err, ErrUnknownKey) {
		t.Errorf("a token from before the restart: %v, want %v", err, ErrUnknownKey)
	}
	if err := first.Reload(); err != nil {
		t.Errorf("reload without files: %v", err)
	}
	if _, err := first.Verify(token); err != nil {
		t.Errorf("the key made at start was lost in a reload: %v", err)
	}
}

// A rotation: the old key moves to the second file, a new one replaces the first, and
// later the old one is removed.
func TestOldKeyVerifiesUntilItIsRemoved(t *testing.T) {
	oldKey, newKey := jwttest.PKCS8(jwttest.Ed25519()), jwttest.PKCS8(jwttest.P256())
	signing, previous := jwttest.Write(t, "signing", oldKey), jwttest.Write(t, "previous", oldKey)
	k, err := Load([]string{signing, previous}, Options{Now: new(clock).now})
	if err != nil {
		t.Fatalf("two files with the same key: %v", err)
	}
	oldToken := issue(t, k, claims())
	oldID := k.SigningKeyID()

	jwttest.Replace(t, signing, newKey)
	wantReload(t, k)
	if k.SigningKeyID() == oldID || !k.Has(oldID) {
		t.Errorf("signing key %q, old key loaded: %v, want a new one beside %q", k.SigningKeyID(), k.Has(oldID), oldID)
	}
	newToken := issue(t, k, claims())
	for name, token := range map[string]string{"old": oldToken, "new": newToken} {
		if _, err := k.Verify(token); err != nil {
			t.Errorf("%s token during the rotation: %v", name, err)
		}
	}

	jwttest.Replace(t, previous, newKey)
	wantReload(t, k)
	if _, err := k.Verify(oldToken); !errors.Is(err, ErrUnknownKey) || k.Has(oldID) {
		t.Errorf("token by a removed key: %v, still loaded: %v, want %v", err, k.Has(oldID), ErrUnknownKey)
	}
	if _, err := k.Verify(newToken); err != nil {
		t.Errorf("new token after the rotation: %v", err)
	}
}

func wantReload(t *testing.T, k *Keys) {
	t.Helper()
	if err := k.Reload(); err != nil {
		t.Fatalf("reload: %v", err)
	}
}

// A gateway that cannot sign verifies the tokens of one that can.
func TestPublicKeyVerifiesButNeverSigns(t *testing.T) {
	for _, kind := range []struct {
		private, public []byte
	}{{jwttest.PKCS8(jwttest.Ed25519()), jwttest.PKIX(jwttest.Ed25519())}, {jwttest.PKCS8(jwttest.RSA()), jwttest.PKIX(jwttest.RSA())}, {jwttest.PKCS8(jwttest.P521()), jwttest.PKIX(jwttest.P521())}} {
		o := Options{Now: new(clock).now}
		signer, verifier := load(t, o, kind.private), load(t, o, jwttest.NewSecret(), kind.public)
		if _, err := verifier.Verify(issue(t, signer, claims())); err != nil {
			t.Errorf("verified by the public key: %v", err)
		}
		if verifier.SigningKeyID() == signer.SigningKeyID() {
			t.Error("the public key signs")
		}
		_, err := Load([]string{jwttest.Write(t, "public.pem", kind.public)}, o)
		wantError(t, err, "public.pem", "is a public key")
	}
}

func TestFailedReloadKeepsTheKeys(t *testing.T) {
	for name, spoil := range map[string]func(path string) error{
		"gone":      os.Remove,
		"empty":     func(path string) error { return os.WriteFile(path, nil, 0o600) },
		"cut off":   func(path string) error { return os.Truncate(path, 60) },
		"short":     func(path string) error { return os.WriteFile(path, jwttest.NewSecret()[:31], 0o600) },
		"public":    func(path string) error { return os.WriteFile(path, jwttest.PKIX(jwttest.RSA()), 0o600) },
		"directory": func(path string) error { return errors.Join(os.Remove(path), os.Mkdir(path, 0o700)) },
	} {
		t.Run(name, func(t *testing.T) {
			first, second := jwttest.Write(t, "first", jwttest.PKCS8(jwttest.Ed25519())), jwttest.Write(t, "second", jwttest.NewSecret())
			k, err := Load([]string{first, second}, Options{Now: new(clock).now})
			if err != nil {
				t.Fatal(err)
			}
			token, id := issue(t, k, claims()), k.SigningKeyID()
			jwttest.Replace(t, second, jwttest.NewSecret()) // would change the set
			if err := spoil(first); err != nil {
				t.Fatal(err)
			}
			set := k.set.Load()
			wantError(t, k.Reload(), first, "stay in use")
			if k.set.Load() != set || k.SigningKeyID() != id {
				t.Error("the keys have changed")
			}
			if _, err := k.Verify(token); err != nil {
				t.Errorf("a token from before the reload: %v", err)
			}
			replaceAny(t, first, jwttest.PKCS8(jwttest.Ed25519()))
			wantReload(t, k)
		})
	}
}

// replaceAny is replace for a path that may be a directory.
func replaceAny(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
	jwttest.Replace(t, path, data)
}

func wantError(t *testing.T, err error, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("error %v, want one that holds %q", err, part)
			return
		}
	}
}

func TestUnwritableNamesAreRefused(t *testing.T) {
	for _, o := range []Options{{Audience: "a\xff"}, {Audience: strings.Repeat("a", 256)}} {
		if _, err := Load(nil, o); err == nil {
			t.Errorf("audience of %d bytes: no error", len(o.Audience))
		}
	}
	k := load(t, Options{Audience: strings.Repeat("a", 255), Now: new(clock).now})
	if _, err := k.Verify(issue(t, k, claims())); err != nil {
		t.Errorf("the longest name: %v", err)
	}
}

// Tokens issued during a rotation verify before and after any reload: the previous key is
// always loaded.
func TestRotationUnderLoadLosesNoToken(t *testing.T) {
	keys := [][]byte{jwttest.NewSecret(), jwttest.PKCS8(jwttest.Ed25519()), jwttest.NewSecret()}
	signing := jwttest.Write(t, "signing", keys[0])
	files := []string{signing}
	for _, data := range keys {
		files = append(files, jwttest.Write(t, "previous", data))
	}
	k, err := Load(files, Options{Now: new(clock).now})
	if err != nil {
		t.Fatal(err)
	}
	var done atomic.Bool
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for !done.Load() {
				token, kid, err := k.Issue(claims())
				if err != nil {
					t.Errorf("issue: %v", err)
					return
				}
				got, err := k.Verify(token)
				if err != nil || got.KeyID != kid || !k.Has(kid) {
					t.Errorf("token by %q: verified by %q, error %v", kid, got.KeyID, err)
					return
				}
				k.SigningKeyID()
			}
		})
	}
	reloadWhile(t, k, signing, keys)
	done.Store(true)
	wg.Wait()
}

// reloadWhile rotates the first file while another goroutine reloads too. Every reload must
// succeed.
func reloadWhile(t *testing.T, k *Keys, signing string, keys [][]byte) {
	var wg sync.WaitGroup
	wg.Go(func() {
		for range 60 {
			if err := k.Reload(); err != nil {
				t.Errorf("reload beside another: %v", err)
			}
		}
	})
	for i := range 60 {
		jwttest.Replace(t, signing, keys[i%len(keys)])
		if err := k.Reload(); err != nil {
			t.Errorf("reload %d: %v", i, err)
		}
	}
	wg.Wait()
}

// A process that takes over verifies the tokens of the one before it, and signs with its key if it has no files
// of its own.
func TestInheritedSecretVerifies(t *testing.T) {
	o := Options{Now: new(clock).now}
	older := load(t, o)
	token := issue(t, older, claims())
	ephemeral, filed := load(t, o), load(t, o, jwttest.NewSecret())
	own := filed.SigningKeyID()
	for _, k := range []*Keys{ephemeral, filed} {
		k.Inherit(older.Secret())
		wantReload(t, k)
		if _, err := k.Verify(token); err != nil {
			t.Errorf("a token of the older process: %v", err)
		}
	}
	if ephemeral.SigningKeyID() != older.SigningKeyID() || filed.SigningKeyID() != own || filed.Secret() != nil {
		t.Errorf("signed by %q and %q, want %q without files and %q with them", ephemeral.SigningKeyID(), filed.SigningKeyID(), older.SigningKeyID(), own)
	}
}

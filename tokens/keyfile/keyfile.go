// Package keyfile reads files that hold one key: PEM, or random bytes for HS256.
// The comment of package tokens lists the formats.
//
// Its errors say what is wrong with a file, do not name it, and contain nothing of
// its content.
package keyfile

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
)

const (
	MinSecret  = 32       // bytes, for HS256: RFC 7518 section 3.2
	MaxLen     = 64 << 10 // bytes of a file
	minRSABits = 2048     // RFC 7518 section 3.5
	maxRSABits = 8192     // a larger signature leaves a token little room for a subject
)

// A Secret is a key for HS256.
type Secret []byte

const pemBegin = "-----BEGIN "

// A form lists the PEM blocks that are keys for a use, how to parse each, and what an error
// asks for instead of another.
type form struct {
	parsers map[string]func([]byte) (any, error)
	want    string
}

// signing accepts keys that sign, or that used to.
var signing = form{
	parsers: map[string]func([]byte) (any, error){
		"PRIVATE KEY":     x509.ParsePKCS8PrivateKey,
		"EC PRIVATE KEY":  func(der []byte) (any, error) { return x509.ParseECPrivateKey(der) },
		"RSA PRIVATE KEY": func(der []byte) (any, error) { return x509.ParsePKCS1PrivateKey(der) },
		"PUBLIC KEY":      x509.ParsePKIXPublicKey,
		"RSA PUBLIC KEY":  func(der []byte) (any, error) { return x509.ParsePKCS1PublicKey(der) },
	},
	want: "PRIVATE KEY, EC PRIVATE KEY or RSA PRIVATE KEY",
}

// verifying accepts keys of other services, whose private keys are refused.
var verifying = form{
	parsers: map[string]func([]byte) (any, error){
		"PUBLIC KEY":     x509.ParsePKIXPublicKey,
		"RSA PUBLIC KEY": signing.parsers["RSA PUBLIC KEY"],
		"CERTIFICATE":    certifiedKey,
	},
	want: "PUBLIC KEY, RSA PUBLIC KEY or CERTIFICATE",
}

func certifiedKey(der []byte) (any, error) {
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return cert.PublicKey, nil
}

// Read returns the content of a file of at most limit bytes.
func Read(name string, limit int64) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, WithoutPath(err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, WithoutPath(err)
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("is larger than %d bytes", limit)
	}
	return data, nil
}

// WithoutPath removes operation and path from an error of package os; the caller adds the path.
func WithoutPath(err error) error {
	if pe, ok := errors.AsType[*os.PathError](err); ok {
		return pe.Err
	}
	return err
}

// Parse returns the one key in data: a Secret, or a private or public key for
// Ed25519 (ed25519.PrivateKey, ed25519.PublicKey), RSA (*rsa.PrivateKey,
// *rsa.PublicKey) or ECDSA (*ecdsa.PrivateKey, *ecdsa.PublicKey), of a size and
// curve that CheckPublic allows.
func Parse(data []byte) (any, error) { return parse(data, signing) }

// ParsePublic returns the one key in data that verifies others' signatures: a Secret, or
// one of the public keys of Parse, which may also be in a certificate. Only the key of a
// certificate is used: its dates and its issuer are not checked. A private key is refused.
func ParsePublic(data []byte) (any, error) { return parse(data, verifying) }

func parse(data []byte, as form) (any, error) {
	if bytes.Contains(data, []byte(pemBegin)) {
		return parsePEM(data, as)
	}
	if err := notSecret(data); err != nil {
		return nil, err
	}
	secret := data
	if printable(data) {
		secret = bytes.TrimRight(data, "\r\n")
	}
	if len(secret) < MinSecret {
		return nil, fmt.Errorf("want a PEM key or at least %d random bytes, got %d bytes", MinSecret, len(secret))
	}
	if len(bytes.Trim(secret, "\x00")) == 0 {
		return nil, fmt.Errorf("want random bytes, got %d zero bytes", len(secret))
	}
	return Secret(secret), nil
}

// printable reports whether data is text: printable ASCII and line breaks.
func printable(data []byte) bool {
	for _, b := range data {
		if (b < ' ' || b > '~') && b != '\n' && b != '\r' && b != '\t' {
			return false
		}
	}
	return true
}

// notSecret refuses keys in unsupported formats: a public key used as a secret would let
// anyone sign.
func notSecret(data []byte) error {
	text := bytes.TrimSpace(data)
	switch {
	case bytes.Contains(bytes.ReplaceAll(data, []byte{0}, nil), []byte(pemBegin)):
		return errors.New("is PEM in UTF-16: want it in ASCII")
	case bytes.HasPrefix(text, []byte("LS0tLS1CRUdJTi")):
		return errors.New("is PEM encoded in base64 once more: want it decoded")
	case bytes.HasPrefix(text, []byte("ssh-")), bytes.HasPrefix(text, []byte("ecdsa-sha2-")):
		return errors.New("is an OpenSSH public key: want PEM")
	case bytes.HasPrefix(text, []byte("{")) && json.Valid(text):
		return errors.New("is JSON: want a key in PEM, not as a JWK")
	case isDER(data):
		return errors.New("is a key or certificate in DER: want it in PEM")
	}
	return nil
}

func isDER(data []byte) bool {
	for _, parse := range signing.parsers {
		if _, err := parse(data); err == nil {
			return true
		}
	}
	_, err := x509.ParseCertificate(data)
	return err == nil
}

// parsePEM returns the only key of a PEM file. It skips the curve's parameters, which
// openssl ecparam writes before the key: the key names its curve.
func parsePEM(data []byte, as form) (any, error) {
	var found *pem.Block
	rest := data
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type == "EC PARAMETERS" {
			continue
		}
		if found != nil {
			return nil, fmt.Errorf("contains more than one PEM block (%s, %s), want one key", found.Type, block.Type)
		}
		found = block
	}
	if found == nil || bytes.Contains(rest, []byte(pemBegin)) {
		return nil, errors.New("contains a truncated or damaged PEM block")
	}
	return parseBlock(found, as)
}

func encrypted(block *pem.Block) bool {
	return block.Type == "ENCRYPTED PRIVATE KEY" || block.Headers["DEK-Info"] != ""
}

// Encrypted reports whether one of the PEM blocks of data is a key with a passphrase.
func Encrypted(data []byte) bool {
	for {
		block, rest := pem.Decode(data)
		if block == nil {
			return false
		}
		if encrypted(block) {
			return true
		}
		data = rest
	}
}

func parseBlock(block *pem.Block, as form) (any, error) {
	if encrypted(block) {
		return nil, errors.New("is encrypted: want a key without a passphrase")
	}
	parse := as.parsers[block.Type]
	if parse == nil {
		return nil, fmt.Errorf("contains PEM of type %q: want %s", block.Type, as.want)
	}
	parsed, err := parse(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", block.Type, err)
	}
	return parsed, CheckPublic(publicOf(parsed))
}

// publicOf returns the public half of a private key, and any other key unchanged.
func publicOf(key any) any {
	if private, ok := key.(crypto.Signer); ok {
		return private.Public()
	}
	return key
}

// CheckPublic returns an error unless public is Ed25519, RSA of a size that is safe
// and affordable, or ECDSA on one of the curves of RFC 7518 section 3.4.
func CheckPublic(public any) error {
	switch p := public.(type) {
	case ed25519.PublicKey:
	case *rsa.PublicKey:
		if bits := p.N.BitLen(); bits < minRSABits || bits > maxRSABits {
			return fmt.Errorf("is an RSA key of %d bits: want %d to %d", bits, minRSABits, maxRSABits)
		}
	case *ecdsa.PublicKey:
		switch curve := p.Curve.Params().Name; curve {
		case "P-256", "P-384", "P-521":
		default:
			return fmt.Errorf("is an ECDSA key on %s: want P-256, P-384 or P-521", curve)
		}
	default:
		return fmt.Errorf("is a key of type %T: want Ed25519, RSA or ECDSA", public)
	}
	return nil
}

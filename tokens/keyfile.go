package tokens

import (
	"bytes"
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

	"github.com/golang-jwt/jwt/v5"
)

const (
	minSecret  = 32       // bytes, for HS256: RFC 7518 section 3.2
	maxKeyFile = 64 << 10 // bytes
	minRSABits = 2048     // RFC 7518 section 3.5
	maxRSABits = 8192     // a larger signature leaves a token little room for a subject
)

const pemBegin = "-----BEGIN "

// pemParsers says which PEM blocks are keys and how each is encoded.
var pemParsers = map[string]func([]byte) (any, error){
	"PRIVATE KEY":     x509.ParsePKCS8PrivateKey,
	"EC PRIVATE KEY":  func(der []byte) (any, error) { return x509.ParseECPrivateKey(der) },
	"RSA PRIVATE KEY": func(der []byte) (any, error) { return x509.ParsePKCS1PrivateKey(der) },
	"PUBLIC KEY":      x509.ParsePKIXPublicKey,
	"RSA PUBLIC KEY":  func(der []byte) (any, error) { return x509.ParsePKCS1PublicKey(der) },
}

// readKey reads the one key in a file. Its errors do not name the file.
func readKey(name string) (key, error) {
	f, err := os.Open(name)
	if err != nil {
		return key{}, withoutPath(err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxKeyFile+1))
	if err != nil {
		return key{}, withoutPath(err)
	}
	if len(data) > maxKeyFile {
		return key{}, fmt.Errorf("is larger than %d bytes", maxKeyFile)
	}
	return parseKey(data)
}

// withoutPath takes the path off an error of package os; the caller names it.
func withoutPath(err error) error {
	if pe, ok := errors.AsType[*os.PathError](err); ok {
		return fmt.Errorf("%s: %w", pe.Op, pe.Err)
	}
	return err
}

func parseKey(data []byte) (key, error) {
	if bytes.Contains(data, []byte(pemBegin)) {
		return parsePEM(data)
	}
	if err := notSecret(data); err != nil {
		return key{}, err
	}
	secret := data
	if printable(data) {
		secret = bytes.TrimRight(data, "\r\n")
	}
	if len(secret) < minSecret {
		return key{}, fmt.Errorf("want a PEM key or at least %d random bytes, got %d bytes", minSecret, len(secret))
	}
	if len(bytes.Trim(secret, "\x00")) == 0 {
		return key{}, fmt.Errorf("want random bytes, got %d zero bytes", len(secret))
	}
	return secretKey(secret), nil
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

// notSecret refuses what is a key in a form that is not read, since a public key
// taken for a secret lets everybody sign.
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
	for _, parse := range pemParsers {
		if _, err := parse(data); err == nil {
			return true
		}
	}
	_, err := x509.ParseCertificate(data)
	return err == nil
}

// parsePEM returns the only key of a PEM file. The curve's parameters, which
// openssl ecparam writes before the key, are passed over: the key names its curve.
func parsePEM(data []byte) (key, error) {
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
			return key{}, fmt.Errorf("holds more than one PEM block (%s, %s), want one key", found.Type, block.Type)
		}
		found = block
	}
	if found == nil || bytes.Contains(rest, []byte(pemBegin)) {
		return key{}, errors.New("holds a PEM block that is cut off or damaged")
	}
	return parseBlock(found)
}

func parseBlock(block *pem.Block) (key, error) {
	if block.Type == "ENCRYPTED PRIVATE KEY" || block.Headers["DEK-Info"] != "" {
		return key{}, errors.New("is encrypted: want a key without a passphrase")
	}
	parse := pemParsers[block.Type]
	if parse == nil {
		return key{}, fmt.Errorf("holds PEM of type %q: want PRIVATE KEY, EC PRIVATE KEY or RSA PRIVATE KEY", block.Type)
	}
	parsed, err := parse(block.Bytes)
	if err != nil {
		return key{}, fmt.Errorf("%s: %w", block.Type, err)
	}
	switch parsed := parsed.(type) {
	case ed25519.PrivateKey:
		return asymmetricKey(parsed, parsed.Public())
	case *ecdsa.PrivateKey:
		return asymmetricKey(parsed, &parsed.PublicKey)
	case *rsa.PrivateKey:
		return asymmetricKey(parsed, &parsed.PublicKey)
	default:
		return asymmetricKey(nil, parsed)
	}
}

// asymmetricKey chooses the one algorithm of a key by its type and size.
func asymmetricKey(private, public any) (key, error) {
	k := key{private: private, public: public}
	switch p := public.(type) {
	case ed25519.PublicKey:
		k.method = jwt.SigningMethodEdDSA
	case *rsa.PublicKey:
		if bits := p.N.BitLen(); bits < minRSABits || bits > maxRSABits {
			return key{}, fmt.Errorf("is an RSA key of %d bits: want %d to %d", bits, minRSABits, maxRSABits)
		}
		k.method = jwt.SigningMethodPS256
	case *ecdsa.PublicKey:
		curve := p.Curve.Params().Name
		if k.method = curveMethods[curve]; k.method == nil {
			return key{}, fmt.Errorf("is an ECDSA key on %s: want P-256, P-384 or P-521", curve)
		}
	default:
		return key{}, fmt.Errorf("is a key of type %T: want Ed25519, RSA or ECDSA", public)
	}
	var err error
	k.id, err = thumbprint(public)
	return k, err
}

var curveMethods = map[string]jwt.SigningMethod{
	"P-256": jwt.SigningMethodES256,
	"P-384": jwt.SigningMethodES384,
	"P-521": jwt.SigningMethodES512,
}

func secretKey(secret []byte) key {
	return key{id: secretID(secret), method: jwt.SigningMethodHS256, private: secret, public: secret}
}

package keyfile

import (
	"crypto/rsa"
	"fmt"
	"os"
	"runtime"
)

const (
	// minDistinct is the min number of different bytes among 32 random ones,
	// except for one secret in 10^20.
	minDistinct = 16
	// fastRSABits is the size beyond which signing tokens is slow: 2048 bits take
	// about 1 ms, 4096 about 6 ms.
	fastRSABits = 2048
)

// Weakness returns why a key that Parse returned should be replaced, "" if it need not.
func Weakness(key any) string {
	switch k := key.(type) {
	case Secret:
		if Distinct(k) < minDistinct {
			return "its bytes are not random: make one by head -c 32 /dev/urandom"
		}
	case *rsa.PrivateKey:
		if bits := k.N.BitLen(); bits > fastRSABits {
			return fmt.Sprintf("RSA of %d bits signs slowly, and a token is signed for each connection: use Ed25519, or RSA of %d", bits, fastRSABits)
		}
	}
	return ""
}

// Distinct returns the number of different bytes in b.
func Distinct(b []byte) (n int) {
	var seen [256]bool
	for _, c := range b {
		if !seen[c] {
			seen[c] = true
			n++
		}
	}
	return n
}

// Exposure returns who besides the owner may read a file, "" for nobody, and whether
// others than its owner and group may write it. Windows has no such permissions.
func Exposure(name string) (readers string, writable bool) {
	info, err := os.Stat(name)
	if err != nil || runtime.GOOS == "windows" {
		return "", false
	}
	mode := info.Mode().Perm()
	switch {
	case mode&0o004 != 0:
		readers = "everybody on this machine"
	case mode&0o040 != 0:
		readers = "its group"
	}
	return readers, mode&0o002 != 0
}

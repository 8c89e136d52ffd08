package keyfile

import (
	"crypto/rsa"
	"fmt"
	"os"
	"runtime"
)

const (
	// minDistinct is the minimum number of different bytes in a random secret of 32. One
	// in 10^20 has fewer.
	minDistinct = 16
	// fastRSABits is the size beyond which signing is slow: 2048 bits take about 1 ms,
	// 4096 about 6 ms.
	fastRSABits = 2048
)

// Weakness returns why a key that Parse returned should be replaced, "" if it need not be.
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

// Exposure returns who besides the owner may read a file, "" for no one, and whether
// anyone besides its owner and group may write it. Windows has no such permissions.
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

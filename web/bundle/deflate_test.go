package main

import (
	"bytes"
	"compress/gzip"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
)

func TestGzippedIsGzip(t *testing.T) {
	script, err := os.ReadFile("../dist/reseat.js")
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	random := make([]byte, 40_000)
	for i := range random {
		random[i] = byte(r.IntN(3) * r.IntN(90))
	}
	for name, content := range map[string][]byte{
		"nothing": {}, "one byte": {7}, "one symbol": bytes.Repeat([]byte{'a'}, 1000), "random": random, "script": script,
		"a match as far as any": slices.Concat(random[:9], random[:maxDistance-9], random[:9]),
		"a match too far":       slices.Concat(random[:9], random[:maxDistance], random[:9]),
	} {
		packed := gzipped(content)
		in, err := gzip.NewReader(bytes.NewReader(packed))
		if err != nil {
			t.Fatal(name, err)
		}
		if got, err := io.ReadAll(in); err != nil || !bytes.Equal(got, content) {
			t.Errorf("%s: %d bytes of %d, %v", name, len(got), len(content), err)
		}
		var b bytes.Buffer
		w, _ := gzip.NewWriterLevel(&b, gzip.BestCompression)
		_, _ = w.Write(content)
		_ = w.Close()
		if name == "script" && len(packed) > b.Len()*98/100 {
			t.Errorf("%s: %d bytes, %d by compress/gzip", name, len(packed), b.Len())
		}
	}
}

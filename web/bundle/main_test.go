package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

func TestServedFilesAreFresh(t *testing.T) {
	files, err := Build("..")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != 8 {
		t.Errorf("%d files, want 4 scripts and their source maps", len(files))
	}
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join("..", "dist", name))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("web/dist/%s is not what its source gives: run go generate ./web (%v)", name, err)
		}
	}
	stored, _ := os.ReadDir("../dist")
	if len(stored) != len(files) {
		t.Errorf("%d files in web/dist, of which %d are made", len(stored), len(files))
	}
}

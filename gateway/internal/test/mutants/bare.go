package main

import (
	"io/fs"
	"slices"
)

// bare is a directory without node_modules.
type bare struct{ fs.FS }

// ReadDir omits node_modules.
func (b bare) ReadDir(name string) ([]fs.DirEntry, error) {
	list, err := fs.ReadDir(b.FS, name)
	return slices.DeleteFunc(list, func(d fs.DirEntry) bool { return d.Name() == "node_modules" || d.Type()&fs.ModeSymlink != 0 }), err
}

// Sbom writes what a release consists of, as CycloneDX 1.6 JSON on standard output: the
// Go modules that its binaries say they were built from, the Go standard library, the
// scripts that they embed, and, as excluded, the modules of the build list that are in none
// of them (tests and tools).
//
//	go run .ci/sbom.go VERSION COMMIT FILE...
//
// SOURCE_DATE_EPOCH is its time, so that the same release has the same bytes.
package main

import (
	"bytes"
	"crypto/sha256"
	"crypto/sha512"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

type bom struct {
	Format       string       `json:"bomFormat"`
	Spec         string       `json:"specVersion"`
	Version      int          `json:"version"`
	Metadata     metadata     `json:"metadata"`
	Components   []component  `json:"components"`
	Dependencies []dependency `json:"dependencies"`
}

type metadata struct {
	Timestamp string    `json:"timestamp"`
	Component component `json:"component"`
}

type component struct {
	Type       string      `json:"type"`
	Ref        string      `json:"bom-ref,omitempty"`
	Name       string      `json:"name"`
	Version    string      `json:"version,omitempty"`
	Scope      string      `json:"scope,omitempty"`
	Hashes     []hash      `json:"hashes,omitempty"`
	Licenses   []license   `json:"licenses,omitempty"`
	PURL       string      `json:"purl,omitempty"`
	Properties []property  `json:"properties,omitempty"`
	Components []component `json:"components,omitempty"`
}

type hash struct {
	Alg     string `json:"alg"`
	Content string `json:"content"`
}

type license struct {
	License struct {
		ID string `json:"id"`
	} `json:"license"`
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type dependency struct {
	Ref       string   `json:"ref"`
	DependsOn []string `json:"dependsOn,omitempty"`
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("sbom: ")
	if len(os.Args) < 4 {
		log.Fatal("usage: sbom VERSION COMMIT FILE...")
	}
	b, err := describe(os.Args[1], os.Args[2], os.Args[3:])
	if err != nil {
		log.Fatal(err)
	}
	out := json.NewEncoder(os.Stdout)
	out.SetIndent("", "  ")
	if err := out.Encode(b); err != nil {
		log.Fatal(err)
	}
}

func describe(version, commit string, binaries []string) (*bom, error) {
	epoch, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	if err != nil {
		return nil, fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
	}
	product := component{Type: "application", Ref: "reseat", Name: "reseat", Version: version, Licenses: mit(), Properties: []property{{"reseat:commit", commit}}}
	modules, files, err := built(binaries)
	if err != nil {
		return nil, err
	}
	product.Components = files
	scripts, err := embedded(strings.TrimPrefix(version, "v"))
	if err != nil {
		return nil, err
	}
	all := append(modules, scripts...)
	depends := dependency{Ref: product.Ref}
	for _, c := range all {
		depends.DependsOn = append(depends.DependsOn, c.Ref)
	}
	rest, err := notBuilt(modules)
	if err != nil {
		return nil, err
	}
	return &bom{
		Format: "CycloneDX", Spec: "1.6", Version: 1,
		Metadata:   metadata{time.Unix(epoch, 0).UTC().Format(time.RFC3339), product},
		Components: append(all, rest...), Dependencies: []dependency{depends},
	}, nil
}

// built returns the modules that the binaries were built from, the standard library among
// them, and the binaries themselves.
func built(binaries []string) (modules, files []component, err error) {
	for _, name := range binaries {
		info, err := buildinfo.ReadFile(name)
		if err != nil {
			return nil, nil, err
		}
		content, err := os.ReadFile(name)
		if err != nil {
			return nil, nil, err
		}
		files = append(files, file(filepath.Base(filepath.Dir(name))+"/"+filepath.Base(name), content))
		modules = append(modules, module("std", strings.TrimPrefix(info.GoVersion, "go"), "", "required"))
		for _, d := range info.Deps {
			if d.Replace != nil {
				d = d.Replace
			}
			modules = append(modules, module(d.Path, d.Version, d.Sum, "required"))
		}
	}
	slices.SortFunc(modules, func(a, b component) int { return strings.Compare(a.Ref, b.Ref) })
	return slices.CompactFunc(modules, func(a, b component) bool { return a.Ref == b.Ref }), files, nil
}

// notBuilt returns the modules of the build list that are not in modules.
func notBuilt(modules []component) (rest []component, err error) {
	out, err := exec.Command("go", "list", "-m", "-json", "all").Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	for list := json.NewDecoder(bytes.NewReader(out)); ; {
		var m struct {
			Path, Version, Sum string
			Main               bool
		}
		if err := list.Decode(&m); errors.Is(err, io.EOF) {
			return rest, nil
		} else if err != nil {
			return nil, err
		}
		c := module(m.Path, m.Version, m.Sum, "excluded")
		if !m.Main && !slices.ContainsFunc(modules, func(in component) bool { return in.Ref == c.Ref }) {
			rest = append(rest, c)
		}
	}
}

func module(path, version, sum, scope string) component {
	purl := "pkg:golang/" + path + "@" + version
	c := component{Type: "library", Ref: purl, Name: path, Version: version, Scope: scope, PURL: purl}
	if sum != "" {
		c.Properties = []property{{"go.sum", sum}}
	}
	return c
}

// embedded returns the scripts that the binaries carry: the browser client, and what the
// dashboard is made with.
func embedded(version string) (list []component, err error) {
	client := component{Type: "library", Ref: "browser-client", Name: "reseat browser client", Version: version, Scope: "required", Licenses: mit()}
	served, err := filepath.Glob("web/dist/*.js")
	if err != nil || len(served) == 0 {
		return nil, errors.Join(err, errors.New("web/dist is empty"))
	}
	for _, name := range served {
		content, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		client.Components = append(client.Components, file(filepath.Base(name), content))
	}
	vendored, err := vendored(os.DirFS("web"))
	return append([]component{client}, vendored...), err
}

// vendored returns the packages that LICENSES.txt of the dashboard names, with the hashes of
// their tarballs.
func vendored(web fs.FS) (list []component, err error) {
	names, err := fs.ReadFile(web, "dashboard/vendor/LICENSES.txt")
	if err != nil {
		return nil, err
	}
	text, err := fs.ReadFile(web, "package-lock.json")
	if err != nil {
		return nil, err
	}
	var lock struct {
		Packages map[string]struct{ Version, Integrity, License string }
	}
	if err := json.Unmarshal(text, &lock); err != nil {
		return nil, err
	}
	for _, m := range regexp.MustCompile(`(?m)^([a-z-]+) (\d+\.\d+\.\d+)$`).FindAllSubmatch(names, -1) {
		name, version := string(m[1]), string(m[2])
		locked := lock.Packages["node_modules/"+name]
		sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(locked.Integrity, "sha512-"))
		if err != nil || len(sum) != sha512.Size || locked.Version != version {
			return nil, fmt.Errorf("%s %s is not what package-lock.json has: %+v", name, version, locked)
		}
		purl := "pkg:npm/" + name + "@" + version
		list = append(list, component{Type: "library", Ref: purl, Name: name, Version: version, Scope: "required",
			Hashes: []hash{{"SHA-512", hex.EncodeToString(sum)}}, Licenses: spdx(locked.License), PURL: purl})
	}
	if len(list) == 0 {
		return nil, errors.New("the dashboard's LICENSES.txt names no package")
	}
	return list, nil
}

func file(name string, content []byte) component {
	sum := sha256.Sum256(content)
	return component{Type: "file", Name: name, Hashes: []hash{{"SHA-256", hex.EncodeToString(sum[:])}}}
}

func mit() []license { return spdx("MIT") }

func spdx(id string) []license {
	var l license
	l.License.ID = id
	return []license{l}
}

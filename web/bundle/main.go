// Command bundle writes the served files of the browser client, web/dist, from its
// source, web/reseat.js and web/client. It runs by "go generate ./web"; a test fails if
// web/dist is stale.
package main

import (
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/evanw/esbuild/pkg/api"
)

// entries are the files of web/dist, each with its source.
var entries = []struct {
	name, source string
	format       api.Format
}{
	{"reseat.js", "reseat.js", api.FormatESModule},
	{"reseat.page.js", "client/page.js", api.FormatESModule},
	{"reseat.install.js", "client/script.js", api.FormatIIFE},
	{"reseat.dev.js", "dev/dev.js", api.FormatIIFE},
}

// onDemand keeps what is imported on demand in a separate file, beside both scripts.
var onDemand = api.Plugin{Name: "on demand", Setup: func(b api.PluginBuild) {
	b.OnResolve(api.OnResolveOptions{Filter: `^\./page\.js$`}, func(api.OnResolveArgs) (api.OnResolveResult, error) {
		return api.OnResolveResult{Path: "./reseat.page.js", External: true}, nil
	})
}}

// Build returns the contents of the files in web/dist by name: each script minified, and
// its source map with the sources included. dir is web.
func Build(dir string) (map[string][]byte, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	var short map[string]any // names of internal members, the same in all files: what is on demand uses them too
	for _, e := range entries {
		options := api.BuildOptions{
			AbsWorkingDir: dir, EntryPoints: []string{e.source}, Outfile: filepath.Join("dist", e.name),
			Bundle: true, Format: e.format, Target: api.ES2022, Charset: api.CharsetASCII, LegalComments: api.LegalCommentsNone,
			MinifyWhitespace: true, MinifyIdentifiers: true, MinifySyntax: true, MangleProps: `^_[a-zA-Z]`, MangleCache: short, // internal members
			Sourcemap: api.SourceMapLinked, Plugins: []api.Plugin{onDemand},
			Define:         map[string]string{"import.meta.classic": "false"},
			SourcesContent: api.SourcesContentInclude,
		}
		if e.format == api.FormatIIFE { // a classic script has no import.meta, which the source handles
			options.Define = map[string]string{"import.meta.classic": "true", "import.meta.url": "undefined"}
		}
		result := api.Build(options)
		short = result.MangleCache
		var failed []error
		for _, m := range append(result.Errors, result.Warnings...) {
			failed = append(failed, fmt.Errorf("bundle %s: %s", e.name, m.Text))
		}
		if len(failed) > 0 {
			return nil, errors.Join(failed...)
		}
		for _, f := range result.OutputFiles {
			files[filepath.Base(f.Path)] = f.Contents
		}
	}
	return files, nil
}

func main() {
	dir := flag.String("dir", ".", "the folder web")
	flag.Parse()
	files, err := Build(*dir)
	if err != nil {
		log.Fatal(err)
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(*dir, "dist", name), content, 0o644); err != nil {
			log.Fatal(err)
		}
	}
}

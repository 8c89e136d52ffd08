package main

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/evanw/esbuild/pkg/api"
)

// letters are the short names, the first ones for the most frequent members. They begin
// with those that esbuild gives to variables, which compress best.
const letters = "tseinrhoalcdpuvgmwfbkyxASTCEDPMORILNFUBGHWVKYjqzXQZJ$_"

// found holds the short names that the option -search found, by member: those with which the
// scripts compress best. Where it is outdated, others are used.
//
//go:embed names.json
var found []byte

var (
	class    = regexp.MustCompile(`(?ms)^(?:export )?class .*?^}`)
	declared = regexp.MustCompile(`(?m)^  (?:(?:get|async|static) )?([#_]\w+)|this\.([#_]\w+)`)
	internal = regexp.MustCompile(`\b_[a-zA-Z]\w*`)
	bare     = regexp.MustCompile(`(?m)^  [#_]\w+;`)
	private  = regexp.MustCompile(`(?m)(^  (?:get |async )?|\.)#(\w)`)
)

// isPublic reports whether a file has the public class, whose private members stay private.
func isPublic(file string) bool { return filepath.Base(file) == "socket.js" }

// loosen makes private members internal ones: #name becomes _name, of the same length. A
// declaration without a value is left out.
func loosen(source string) string {
	return private.ReplaceAllString(bare.ReplaceAllString(source, ""), "${1}_$2")
}

// privates makes the private members of all but the public class internal ones, which
// get short names together with the others.
var privates = api.Plugin{Name: "privates", Setup: func(b api.PluginBuild) {
	b.OnLoad(api.OnLoadOptions{Filter: `[/\\]client[/\\]\w+\.js$`}, func(args api.OnLoadArgs) (api.OnLoadResult, error) {
		content, err := os.ReadFile(args.Path)
		source := string(content)
		if !isPublic(args.Path) {
			source = loosen(source)
		}
		return api.OnLoadResult{Contents: &source, Loader: api.LoaderJS}, err
	})
}}

// members returns the internal members of the sources in dir, the most frequent first, and of each
// those that the same objects have.
func members(dir string) ([]string, map[string]map[string]bool, error) {
	files, err := filepath.Glob(filepath.Join(dir, "client", "*.js"))
	if err != nil {
		return nil, nil, err
	}
	uses := map[string]int{}
	beside := map[string]map[string]bool{}
	object := func(names []string) {
		for _, a := range names {
			if beside[a] == nil {
				beside[a] = map[string]bool{}
			}
			for _, b := range names {
				if a != b {
					beside[a][b] = true
				}
			}
		}
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, nil, err
		}
		source := string(content)
		if isPublic(file) {
			object(internal.FindAllString(source, -1)) // of its object literals
		} else {
			for _, body := range class.FindAllString(source, -1) {
				var names []string
				for _, m := range declared.FindAllStringSubmatch(body, -1) {
					names = append(names, strings.Replace(m[1]+m[2], "#", "_", 1))
				}
				object(names)
			}
			source = loosen(source)
		}
		for _, name := range internal.FindAllString(source, -1) {
			uses[name]++
		}
	}
	order := make([]string, 0, len(uses))
	for name := range uses {
		order = append(order, name)
	}
	slices.SortFunc(order, func(a, b string) int { return cmp.Or(uses[b]-uses[a], strings.Compare(a, b)) })
	return order, beside, nil
}

// names returns a name of one letter for each internal member of the sources in dir. Members of
// different objects may share one: that compresses better than a name for each.
func names(dir string) (map[string]any, error) {
	order, beside, err := members(dir)
	if err != nil {
		return nil, err
	}
	var known map[string]string
	if err := json.Unmarshal(found, &known); err != nil {
		return nil, err
	}
	given := map[string]any{}
	give := func(name, choice string) {
		for _, l := range choice {
			free := true
			for other := range beside[name] {
				free = free && given[other] != string(l)
			}
			if free {
				given[name] = string(l)
				return
			}
		}
	}
	for _, name := range order {
		give(name, known[name])
	}
	for _, name := range order {
		if given[name] == nil {
			give(name, letters)
		}
		if given[name] == nil {
			return nil, errors.New("no letter is left for " + name)
		}
	}
	return given, nil
}

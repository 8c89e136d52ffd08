package report

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"
)

// A Machine describes the machine and the versions that were measured.
type Machine struct {
	CPU      string   `json:"cpu"`
	Cores    int      `json:"cores"`
	Memory   string   `json:"memory"`
	Kernel   string   `json:"kernel"`
	Versions []string `json:"versions"`
}

func thisMachine(binary string) Machine {
	m := Machine{Cores: runtime.NumCPU(), CPU: fileField("/proc/cpuinfo", "model name"), Memory: "unknown"}
	var kib float64
	if _, err := fmt.Sscanf(fileField("/proc/meminfo", "MemTotal"), "%f kB", &kib); err == nil {
		m.Memory = fmt.Sprintf("%.0f GiB", kib/(1<<20))
	}
	if b, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		version, _, _ := strings.Cut(strings.TrimSpace(string(b)), "-") // the rest is the builder's
		m.Kernel = "Linux " + version + ", " + runtime.GOARCH
	}
	m.Versions = []string{
		"Reseat " + said(`\d\S*|devel\S*`, binary, "--version"), "Go " + strings.TrimPrefix(runtime.Version(), "go"),
		"nginx " + said(`nginx/(\S+)`, "nginx", "-v"), "HAProxy " + said(`version (\S+)`, "haproxy", "-v"),
		"coder/websocket " + module("github.com/coder/websocket"),
	}
	return m
}

// fileField returns the value after a name in a file such as /proc/cpuinfo.
func fileField(file, name string) string {
	b, _ := os.ReadFile(file)
	return found(`(?m)^`+name+`\s*:\s*(.*)`, string(b))
}

// said returns what matches pattern in a program's version output.
func said(pattern, program string, arg string) string {
	b, _ := exec.Command(program, arg).CombinedOutput()
	return found(pattern, string(b))
}

// found returns the last group of a pattern, or what matches it.
func found(pattern, text string) string {
	if m := regexp.MustCompile(pattern).FindStringSubmatch(text); m != nil {
		return m[len(m)-1]
	}
	return "unknown"
}

func module(path string) string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, d := range info.Deps {
			if d.Path == path {
				return d.Version
			}
		}
	}
	return "unknown"
}

// String describes the machine in a sentence.
func (m Machine) String() string {
	return fmt.Sprintf("%s, %d cores, %s, %s; %s", m.CPU, m.Cores, m.Memory, m.Kernel, strings.Join(m.Versions, ", "))
}

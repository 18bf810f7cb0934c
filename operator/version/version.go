// Package version says which build this is.
package version

import (
	"runtime/debug"
	"strings"
)

// release and commit are set by the linker in released builds.
var release, commit string

// String returns the release, or what the Go toolchain recorded: a module version or a commit.
func String() string {
	if release != "" {
		return release
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	if revision := Commit(); revision != "" {
		return "devel-" + revision[:min(12, len(revision))]
	}
	return "devel"
}

// Commit returns the commit that this was built from, or an empty string if it was not recorded.
func Commit() string {
	if commit != "" {
		return commit
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, setting := range info.Settings {
		if setting.Key == "vcs.revision" {
			return setting.Value
		}
	}
	return ""
}

// Label returns the version as the value of a label, which must not contain "+".
func Label() string { return strings.ReplaceAll(String(), "+", "_") }

package source

import (
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// Filenames selects what to read, by kubectl's flags -f, -k and -R.
type Filenames struct {
	// Paths are files, directories, http and https URLs, and "-" for standard input. Of a directory, the .yaml, .yml
	// and .json files are read, and those in its subdirectories only if Recursive is true.
	Paths     []string
	Recursive bool
	// Kustomization is a directory with a kustomization.yaml, or a URL of one. It is empty if there are Paths.
	Kustomization string
}

// AddFlags adds the flags to a command. Content is what the files contain, such as "templates".
func (f *Filenames) AddFlags(cmd *cobra.Command, content string) {
	flags := cmd.Flags()
	flags.StringArrayVarP(&f.Paths, "filename", "f", nil,
		"A file, directory or URL with "+content+", or - for standard input. Symbolic links are not followed.")
	flags.BoolVarP(&f.Recursive, "recursive", "R", false, "Read the subdirectories of the directories of -f, too.")
	flags.StringVarP(&f.Kustomization, "kustomize", "k", "",
		"A directory with a kustomization that builds "+content+", instead of -f.")
}

// IsEmpty reports whether the flags select nothing.
func (f *Filenames) IsEmpty() bool { return len(f.Paths) == 0 && f.Kustomization == "" }

// Check returns an error if flags cannot be combined.
func (f *Filenames) Check() error {
	switch {
	case len(f.Paths) > 0 && f.Kustomization != "":
		return errors.New("specify either -f or -k")
	case f.Recursive && len(f.Paths) == 0:
		return errors.New("-R requires -f")
	}
	return nil
}

// String returns what -f or -k selects, for messages.
func (f *Filenames) String() string {
	if f.Kustomization != "" {
		return f.Kustomization
	}
	names := slices.Clone(f.Paths)
	for i, name := range names {
		if name == "-" {
			names[i] = "standard input"
		}
	}
	return strings.Join(names, ", ")
}

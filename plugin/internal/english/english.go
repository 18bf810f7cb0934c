// Package english keeps the texts of flags and errors that come from kubectl in English, as all others are. Loading
// kubectl's translations would take a third of the CPU time with which the plugin starts.
//
// Go initializes packages in the order of their dependencies, so this package imports nothing else.
package english

import "k8s.io/kubectl/pkg/util/i18n"

func init() {
	if err := i18n.SetLoadTranslationsFunc(func() error { return nil }); err != nil {
		panic(err)
	}
}

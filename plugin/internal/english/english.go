// Package english keeps the texts of flags and errors that come from kubectl in English, as all others are. Loading
// kubectl's translations would take a third of the CPU time with which the plugin starts.
//
// Go initializes a package as soon as its imports are. So this package imports nothing else: it is initialized before
// those of kubectl's packages whose initialization loads the translations.
package english

import "k8s.io/kubectl/pkg/util/i18n"

func init() {
	// An error means that the translations are loaded: texts are as in kubectl then.
	_ = i18n.SetLoadTranslationsFunc(func() error { return nil })
}

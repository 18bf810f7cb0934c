package cli

import "k8s.io/cli-runtime/pkg/genericclioptions"

// NewPrintFlags returns kubectl's flags for the output of objects. They do not have kubectl's flag --template: in all
// commands, it names a NamespaceTemplate. A template of Go is a part of --output, as in -o go-template='{{.kind}}'.
func NewPrintFlags(operation string) *genericclioptions.PrintFlags {
	flags := genericclioptions.NewPrintFlags(operation)
	withoutTemplate(flags.TemplatePrinterFlags)
	return flags
}

func withoutTemplate(flags *genericclioptions.KubeTemplatePrintFlags) {
	flags.TemplateArgument = nil
	flags.GoTemplatePrintFlags.TemplateArgument = nil
	flags.JSONPathPrintFlags.TemplateArgument = nil
}

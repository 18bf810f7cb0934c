package namespace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/kubectl/pkg/util/templates"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/operator/engine/render"
	"nstpl.dev/nstpl/plugin/internal/cli"
	"nstpl.dev/nstpl/plugin/internal/cluster"
	"nstpl.dev/nstpl/plugin/internal/survey"
)

type exempt struct {
	cli.Session
	written  cli.Written
	template string
	// objects are those of the command line, as TYPE/NAME.
	objects []string
	reason  string
	length  string
	expires string
	force   bool
	list    bool
	// listed is the namespace whose exemptions to list, or empty for all namespaces.
	listed string
	// end is when the exemption expires, or zero.
	end time.Time
}

// NewExempt returns the command `kubectl nstpl exempt`.
func NewExempt(s cli.Session) *cobra.Command {
	o := &exempt{Session: s}
	cmd := &cobra.Command{
		Use: "exempt NAMESPACE --template TEMPLATE [--object TYPE/NAME]... --reason TEXT [--for DURATION | --expires TIME] " +
			"[--force] [--dry-run=none|client|server] | exempt --list [NAMESPACE]",
		Short: "Exempt a namespace from a template, or from objects of it",
		Long: templates.LongDesc(`
			Exempt a namespace from a template or, with --object, from some of its objects. The operator then leaves
			these objects alone: it does not create, correct or delete them. The command writes a TemplateExemption
			into the namespace. You need the verb exempt on the template.

			The exemption ends at the time of --expires, or after the duration of --for. Without these flags, it ends
			when you delete it. If you use the command again for the same objects, it changes the reason and the
			end. The command rejects an object that the template does not declare for the namespace, unless you use
			--force. If you may not read templates, it also rejects an object that the template has not populated.

			With --list, the command lists the exemptions of the namespace that you name, also by -n, or of all
			namespaces.`),
		Example: templates.Examples(`
			# Let the users of a namespace change a quota for three days
			kubectl nstpl exempt team-a --template budget --object resourcequota/compute --reason load-test --for 3d

			# Exempt a namespace from a whole template
			kubectl nstpl exempt team-a --template network --reason OPS-123 --expires 2030-01-31T18:00:00Z

			# List the exemptions of all namespaces
			kubectl nstpl exempt --list

			# End an exemption early
			kubectl delete templateexemption network -n team-a`),
		Args: func(cmd *cobra.Command, args []string) error {
			if o.list && len(args) <= 1 {
				return o.checkList(cmd, args)
			}
			return cli.OneArg("NAMESPACE")(cmd, args)
		},
		ValidArgsFunction: s.CompleteNamespaces(1),
		RunE: cli.NamespaceResource().Named(func(cmd *cobra.Command, name string) error {
			if o.list {
				return o.runList(cmd.Context())
			}
			if err := o.check(time.Now()); err != nil {
				return cli.UsageError(cmd, err)
			}
			return o.run(cmd.Context(), name)
		}),
	}
	o.written.AddFlags(cmd)
	flags := cmd.Flags()
	flags.StringVar(&o.template, "template", "", "The template to exempt the namespace from.")
	flags.StringArrayVar(&o.objects, "object", nil,
		"An object of the template, as TYPE/NAME, instead of the whole template. Can be repeated.")
	flags.StringVar(&o.reason, "reason", "", "Why the namespace is exempt, for those who audit the cluster.")
	flags.StringVar(&o.length, "for", "", "How long the namespace is exempt, such as 12h, 3d or 2w.")
	flags.StringVar(&o.expires, "expires", "", "When the exemption ends, such as 2030-01-31T18:00:00Z.")
	flags.BoolVar(&o.force, "force", false,
		"Exempt the namespace from objects that the template does not declare for it, too.")
	flags.BoolVar(&o.list, "list", false, "List the exemptions of a namespace, or of all namespaces.")
	s.CompleteObjectFlag(cmd, "template", v1alpha1.NamespaceTemplates)
	cli.CompleteFlag(cmd, "object", o.completeObjects)
	return cmd
}

// check checks the flags, and sets the end of the exemption.
func (o *exempt) check(now time.Time) (err error) {
	switch {
	case o.template == "":
		return errors.New("--template is required")
	case strings.TrimSpace(o.reason) == "":
		return errors.New("--reason is required: those who audit the cluster read it")
	case o.expires != "" && o.length != "":
		return errors.New("--for and --expires cannot be combined")
	case o.length != "":
		length, err := parseLength(o.length)
		if err != nil {
			return fmt.Errorf("--for: %w", err)
		}
		o.end = now.Add(length)
	case o.expires != "":
		if o.end, err = time.Parse(time.RFC3339, o.expires); err != nil {
			return fmt.Errorf("--expires: %q is not a time such as 2030-01-31T18:00:00Z", o.expires)
		}
		if !o.end.After(now) {
			return fmt.Errorf("--expires: %s is in the past", o.expires)
		}
	}
	if o.template, err = cli.TemplateResource("").Name(o.template); err != nil {
		return fmt.Errorf("--template: %w", err)
	}
	return nil
}

var daysOrWeeks = regexp.MustCompile(`^([0-9]{1,4})([dw])$`)

// parseLength parses a length of time such as 12h, 3d or 2w.
func parseLength(text string) (time.Duration, error) {
	const day = 24 * time.Hour
	if match := daysOrWeeks.FindStringSubmatch(text); match != nil {
		count, err := strconv.Atoi(match[1])
		if err == nil && count > 0 {
			return time.Duration(count) * map[string]time.Duration{"d": day, "w": 7 * day}[match[2]], nil
		}
	}
	length, err := time.ParseDuration(text)
	switch {
	case err != nil:
		return 0, fmt.Errorf("%q is not a length of time such as 12h, 3d or 2w", text)
	case length <= 0:
		return 0, fmt.Errorf("%q must be positive", text)
	}
	return length, nil
}

func (o *exempt) run(ctx context.Context, namespace string) error {
	c, err := o.Connect()
	if err != nil {
		return err
	}
	if err := c.CheckInstalled(ctx); err != nil {
		return err
	}
	ns, err := c.Namespaces.Get(ctx, namespace, metav1.GetOptions{})
	if err != nil && !apierrors.IsForbidden(err) {
		return err
	}
	if _, err := c.Template(ctx, o.template); apierrors.IsNotFound(err) {
		return err // the name may be misspelt
	}
	var declared declaration
	if err == nil {
		declared = o.declared(ctx, c, ns)
	}
	wanted, err := o.wanted(ctx, c, namespace, declared.all())
	if err != nil {
		return err
	}
	if declared.isKnown {
		err = o.checkDeclared(namespace, wanted, declared)
	} else if _, getErr := exemptionsIn(c, namespace).Get(ctx, wanted.Name, metav1.GetOptions{}); getErr != nil {
		err = o.checkLabels(ctx, c, wanted)
	}
	if err != nil {
		return err
	}
	return o.write(ctx, c, wanted)
}

// declaration is what a template declares for a namespace, whether it is exempt or not.
type declaration struct {
	// current are the objects of the revision that the namespace has. coming are those of the newest revision, if it
	// has not reached the namespace, and revision is its number.
	current, coming []populate.ObjectID
	revision        int64
	isKnown         bool
}

func (d declaration) all() []populate.ObjectID { return slices.Concat(d.current, d.coming) }

// declared reads what the template declares for a namespace.
func (o *exempt) declared(ctx context.Context, c *cluster.Cluster, ns *corev1.Namespace) declaration {
	all, err := c.Templates(ctx)
	if err != nil {
		return declaration{}
	}
	index, unread := c.Index(ctx, all, []*corev1.Namespace{ns})
	if len(unread) > 0 {
		return declaration{}
	}
	index.SetExemptions(ns.Name, nil)
	return newDeclaration(index, o.template, ns)
}

// newDeclaration returns what a template of an index without exemptions declares for a namespace.
func newDeclaration(index *match.Index, template string, ns *corev1.Namespace) declaration {
	d := declaration{isKnown: true}
	objectsOf := func(selecting []*v1alpha1.NamespaceTemplate) []populate.ObjectID {
		i := slices.IndexFunc(selecting, func(t *v1alpha1.NamespaceTemplate) bool { return t.Name == template })
		if i < 0 {
			return nil
		}
		ids, isComplete := survey.DeclaredBy(selecting[i], ns)
		d.isKnown = d.isKnown && isComplete
		return ids
	}
	d.current, d.coming = objectsOf(index.Match(ns)), objectsOf(index.Ahead(ns))
	if len(d.coming) > 0 {
		d.revision = index.Layers(template)[0].Revision
	}
	return d
}

// wanted returns the exemption that the command line describes.
func (o *exempt) wanted(
	ctx context.Context, c *cluster.Cluster, namespace string, declared []populate.ObjectID,
) (*v1alpha1.TemplateExemption, error) {
	wanted := &v1alpha1.TemplateExemption{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "TemplateExemption"},
		ObjectMeta: metav1.ObjectMeta{Name: o.template, Namespace: namespace},
		Spec:       v1alpha1.TemplateExemptionSpec{Template: o.template, Reason: o.reason},
	}
	if !o.end.IsZero() {
		wanted.Spec.Expires = &metav1.Time{Time: o.end.UTC().Truncate(time.Second)}
	}
	for _, argument := range o.objects {
		id, err := c.ObjectID(ctx, argument, declared)
		if err != nil {
			return nil, fmt.Errorf("--object: %w", err)
		}
		object := v1alpha1.ExemptObject{Group: id.Group, Kind: id.Kind, Name: id.Name}
		if !slices.Contains(wanted.Spec.Objects, object) {
			wanted.Spec.Objects = append(wanted.Spec.Objects, object)
		}
	}
	slices.SortFunc(wanted.Spec.Objects, func(a, b v1alpha1.ExemptObject) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	if len(wanted.Spec.Objects) > 0 {
		wanted.Name = exemptionName(&wanted.Spec)
	}
	return wanted, nil
}

// exemptionName returns the name of an exemption from objects of a template. It is the same for the same objects.
func exemptionName(spec *v1alpha1.TemplateExemptionSpec) string {
	const longest = 253 - len("-") - 8
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(match.ObjectList(spec)))
	name := spec.Template[:min(len(spec.Template), longest)]
	return fmt.Sprintf("%s-%08x", strings.TrimRight(name, ".-"), sum.Sum32())
}

// checkDeclared returns an error if the template does not declare an object of the exemption for the namespace: the
// name may be misspelt. With --force, and for a whole template, it prints a note instead: the template may be changed
// later. It prints one, too, if only a revision declares the object that has not reached the namespace.
func (o *exempt) checkDeclared(namespace string, wanted *v1alpha1.TemplateExemption, declared declaration) error {
	if len(wanted.Spec.Objects) == 0 {
		switch {
		case len(declared.current) > 0:
		case len(declared.coming) > 0:
			o.noteComing("objects", namespace, declared.revision)
		default:
			o.Note("template %s declares nothing for namespace/%s, so the exemption has no effect yet", o.template, namespace)
		}
	}
	for _, object := range wanted.Spec.Objects {
		id := idOf(object)
		switch {
		case slices.Contains(declared.current, id):
		case slices.Contains(declared.coming, id):
			o.noteComing(id.String(), namespace, declared.revision)
		case o.force:
			o.Note("template %s does not declare %s for namespace/%s, so its exemption has no effect yet", o.template, id,
				namespace)
		default:
			return fmt.Errorf("template %s does not declare %s for namespace/%s: 'kubectl nstpl preview %[3]s -o name' lists "+
				"what templates declare for it, and --force exempts it nevertheless", o.template, id, namespace)
		}
	}
	return nil
}

// noteComing prints that the exemption has an effect only when the newest revision reaches the namespace.
func (o *exempt) noteComing(what, namespace string, revision int64) {
	o.Note("revision %d of template %s declares %s for namespace/%s and has not reached it, so the exemption has no "+
		"effect yet", revision, o.template, what, namespace)
}

// checkLabels is checkDeclared for a template that the user may not read, or that cannot be rendered: it asks whether
// the objects are populated by the template, as their labels say.
func (o *exempt) checkLabels(ctx context.Context, c *cluster.Cluster, wanted *v1alpha1.TemplateExemption) error {
	const unknown = "it is unknown what template %s declares for namespace/%s, so %s"
	if len(wanted.Spec.Objects) == 0 {
		o.Note(unknown, o.template, wanted.Namespace, "the exemption may have no effect")
	}
	for _, object := range wanted.Spec.Objects {
		id := idOf(object)
		if id.GroupKind == render.NamespaceKind.GroupKind() {
			continue // its labels do not name the templates that set some of them
		}
		var live *unstructured.Unstructured
		objects, err := c.Objects(ctx, id.WithVersion(""), wanted.Namespace)
		if err == nil {
			live, err = objects.Get(ctx, id.Name, metav1.GetOptions{})
		}
		switch {
		case err == nil && live.GetLabels()[v1alpha1.TemplateNameLabel] == o.template:
		case o.force || apierrors.IsForbidden(err):
			o.Note(unknown, o.template, wanted.Namespace, fmt.Sprintf("the exemption of %s may have no effect", id))
		case err != nil && !apierrors.IsNotFound(err):
			return fmt.Errorf("--object: %w", err)
		default:
			return fmt.Errorf("template %s has not populated %s in namespace/%s, and what it declares is unknown: --force "+
				"exempts the object nevertheless", o.template, id, wanted.Namespace)
		}
	}
	return nil
}

func exemptionsIn(c *cluster.Cluster, namespace string) dynamic.ResourceInterface {
	return c.Dynamic.Resource(v1alpha1.TemplateExemptions).Namespace(namespace)
}

func idOf(object v1alpha1.ExemptObject) populate.ObjectID {
	return populate.ObjectID{GroupKind: schema.GroupKind{Group: object.Group, Kind: object.Kind}, Name: object.Name}
}

// write creates the exemption, or changes the reason and the end of the one that exists.
func (o *exempt) write(ctx context.Context, c *cluster.Cluster, wanted *v1alpha1.TemplateExemption) error {
	exemptions := exemptionsIn(c, wanted.Namespace)
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(wanted)
	if err != nil {
		return err
	}
	object := &unstructured.Unstructured{Object: content}
	unstructured.RemoveNestedField(object.Object, "status")
	unstructured.RemoveNestedField(object.Object, "metadata", "creationTimestamp")
	existing, err := exemptions.Get(ctx, wanted.Name, metav1.GetOptions{})
	switch {
	case o.written.IsLocal() && (apierrors.IsNotFound(err) || apierrors.IsForbidden(err)):
		return o.written.Print(o.Out, object, "created")
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
		created, err := exemptions.Create(ctx, object,
			metav1.CreateOptions{FieldManager: cli.FieldManager, DryRun: o.written.DryRun()})
		if err != nil {
			return err
		}
		return o.written.Print(o.Out, created, "created")
	case err != nil:
		return err
	}
	if template, _, _ := unstructured.NestedString(existing.Object, "spec", "template"); template != o.template {
		return fmt.Errorf("templateexemption %s in namespace %s is from template %s, and exempt would end it: create it "+
			"under another name, run 'kubectl delete templateexemption %[1]s -n %[2]s', and then try again",
			wanted.Name, wanted.Namespace, template)
	}
	before := existing.Object["spec"]
	existing.Object["spec"] = object.Object["spec"]
	switch {
	case reflect.DeepEqual(existing.Object["spec"], before):
		return o.written.Print(o.Out, existing, "unchanged")
	case o.written.IsLocal():
		return o.written.Print(o.Out, existing, "configured")
	}
	changed, err := exemptions.Update(ctx, existing,
		metav1.UpdateOptions{FieldManager: cli.FieldManager, DryRun: o.written.DryRun()})
	if err != nil {
		return err
	}
	return o.written.Print(o.Out, changed, "configured")
}

// completeObjects completes an object of the template of the command line.
func (o *exempt) completeObjects(
	cmd *cobra.Command, args []string, typed string,
) ([]string, cobra.ShellCompDirective) {
	const none = cobra.ShellCompDirectiveNoFileComp
	ctx, cancel := context.WithTimeout(cmd.Context(), 2*time.Second)
	defer cancel()
	if len(args) != 1 || o.template == "" {
		return nil, none
	}
	name, err := cli.NamespaceResource().Name(args[0])
	if err != nil {
		return nil, none
	}
	c, err := o.Connect()
	if err != nil {
		return nil, none
	}
	ns, err := c.Namespaces.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, none
	}
	var completions []string
	for _, id := range o.declared(ctx, c, ns).all() {
		if strings.HasPrefix(id.String(), typed) {
			completions = append(completions, id.String())
		}
	}
	slices.Sort(completions)
	return slices.Compact(completions), none
}

package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/kubectl/pkg/util/templates"
	strictjson "sigs.k8s.io/json"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/attributes"
	"nstpl.dev/nstpl/operator/scc"
	"nstpl.dev/nstpl/plugin/internal/output"
	"nstpl.dev/nstpl/plugin/internal/source"
)

type sccReview struct {
	session
	files         []string
	constraints   []string
	namespaceFile string
	account       string
	format        string
}

func newSCCReview(s session) *cobra.Command {
	o := &sccReview{session: s}
	cmd := &cobra.Command{
		Use:   "review -f FILE [-z SERVICEACCOUNT] [--as USER --as-group GROUP...] [-o table|yaml|json]",
		Short: "Show which SecurityContextConstraints admit a pod and what they set, or why none does",
		Long: templates.LongDesc(`
			Show which SecurityContextConstraints would admit pods, or the pods of workloads, and what they would set on
			them; or, for each of the constraints, what it does not allow. It runs what the operator runs.

			With --constraints it needs no cluster: the constraints and the namespace come from files, users and groups
			from --as and --as-group, and nobody has the verb use.

			Exit status: 0 if all are admitted, and 1 if not or if it can't be told.`),
		Example: templates.Examples(`
			# What becomes of a pod that I create in team-a
			kubectl nstpl scc review -f pod.yaml -n team-a

			# And of one with another service account, created by somebody else
			kubectl nstpl scc review -f pod.yaml -n team-a -z builder --as jane

			# Without a cluster
			kubectl nstpl scc review -f pod.yaml --constraints constraints/ --namespace-file namespace.yaml --as jane -o json`),
		DisableFlagsInUseLine: true,
		Args:                  exactly(0, "nothing but flags"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case len(o.files) == 0:
				return usageError(cmd, errors.New("name a file with -f"))
			case o.format != "table" && o.format != "yaml" && o.format != jsonFormat:
				return usageError(cmd, fmt.Errorf("--output is %q: it can be table, yaml or json", o.format))
			case o.namespaceFile != "" && len(o.constraints) == 0:
				return usageError(cmd, errors.New("--namespace-file goes with --constraints: in a cluster, the namespace is there"))
			}
			return o.run(cmd.Context())
		},
	}
	flags := cmd.Flags()
	flags.StringArrayVarP(&o.files, "filename", "f", nil, "A file or folder with pods and workloads, or - for standard input.")
	flags.StringVarP(&o.account, "serviceaccount", "z", "", "The service account of the pods, in place of the one that they name.")
	flags.StringArrayVar(&o.constraints, "constraints", nil, "A file or folder with SecurityContextConstraints, in place of the cluster's.")
	flags.StringVar(&o.namespaceFile, "namespace-file", "", "A file with the Namespace of the pods, in place of the cluster's.")
	flags.StringVarP(&o.format, "output", "o", "table", "Output format. One of: (table, yaml, json).")
	completeValues(cmd, "output", "table", "yaml", jsonFormat)
	return cmd
}

// sccAnswer is what review -o json prints.
type sccAnswer struct {
	Allowed    bool         `json:"allowed"`
	Constraint *string      `json:"constraint"`
	Subject    *string      `json:"subject"`
	Pod        *corev1.Pod  `json:"pod"`
	Reasons    []scc.Reason `json:"reasons"`
	object     string
	given      *corev1.Pod
	// before are the reasons of the constraints that were tried before the one that admits the pod.
	before []scc.Reason
}

func (o *sccReview) run(ctx context.Context) error {
	objects, err := source.Objects(o.files...)
	if err != nil {
		return err
	}
	setting, err := o.setting(ctx)
	if err != nil {
		return err
	}
	var answers []sccAnswer
	for _, object := range objects {
		template := podTemplateIn(object)
		if template == nil {
			o.note("%s %s has no pods", object.GetKind(), object.GetName())
			continue
		}
		one, err := o.review(ctx, setting, object, template)
		if err != nil {
			return err
		}
		one.object = output.Object(object.GroupVersionKind().GroupKind(), object.GetName())
		if one.Subject != nil && *one.Subject == scc.UserSubject && object.GetKind() != "Pod" {
			o.note("%s: its pods are made by a controller, which has not the right of the user: give the service account a right to use %s", one.object, *one.Constraint)
		}
		answers = append(answers, one)
	}
	if len(answers) == 0 {
		return fmt.Errorf("there are no pods in %q", o.files)
	}
	if err := o.write(answers); err != nil {
		return err
	}
	if slices.ContainsFunc(answers, func(a sccAnswer) bool { return !a.Allowed }) {
		return &Exit{Code: 1}
	}
	return nil
}

// podTemplateIn returns a pod, or what a workload makes its pods of; nil if there is none.
func podTemplateIn(object *unstructured.Unstructured) map[string]any {
	if object.GetKind() == "Pod" {
		return object.Object
	}
	for _, path := range [][]string{{"spec", "template"}, {"spec", "jobTemplate", "spec", "template"}, {"template"}} {
		if found, there, _ := unstructured.NestedMap(object.Object, path...); there && found["spec"] != nil {
			return found
		}
	}
	return nil
}

// podOf returns the pod that an object is, or that is made of its template.
func (o *sccReview) podOf(object *unstructured.Unstructured, template map[string]any) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	if err := o.decode(object, template, pod); err != nil {
		return nil, err
	}
	if pod.Name == "" {
		pod.Name = object.GetName()
	}
	pod.APIVersion, pod.Kind = "v1", "Pod"
	defaultPorts(&pod.Spec)
	if pod.Spec.ServiceAccountName == "" {
		pod.Spec.ServiceAccountName = pod.Spec.DeprecatedServiceAccount
	}
	if object.GetKind() == "StatefulSet" {
		claims, _, _ := unstructured.NestedSlice(object.Object, "spec", "volumeClaimTemplates")
		for _, claim := range claims {
			fields, _ := claim.(map[string]any)
			name, _, _ := unstructured.NestedString(fields, "metadata", "name")
			pod.Spec.Volumes = slices.DeleteFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == name })
			pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name + "-" + object.GetName() + "-0"},
			}})
		}
	}
	return pod, nil
}

// decode reads fields of an object, and says which of them is wrong or not known.
func (o *sccReview) decode(object *unstructured.Unstructured, fields map[string]any, into any) error {
	data, err := json.Marshal(fields)
	if err != nil {
		return err
	}
	unknown, err := strictjson.UnmarshalStrict(data, into)
	if err != nil {
		return fmt.Errorf("%s %s: %w", object.GetKind(), object.GetName(), err)
	}
	for _, field := range unknown {
		o.note("Warning: %s %s: %v", object.GetKind(), object.GetName(), field)
	}
	return nil
}

// defaultPorts does what the API server does to pods in the host's network before they are admitted.
func defaultPorts(spec *corev1.PodSpec) {
	if !spec.HostNetwork {
		return
	}
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			for j := range containers[i].Ports {
				if port := &containers[i].Ports[j]; port.HostPort == 0 {
					port.HostPort = port.ContainerPort
				}
			}
		}
	}
}

// sccSetting is what pods are judged by.
type sccSetting struct {
	constraints []*v1alpha1.SecurityContextConstraints
	// namespace is the one that pods are in which say none, or all of them if it is chosen.
	namespace string
	chosen    bool
	// annotations returns those of a namespace.
	annotations func(ctx context.Context, namespace string) (map[string]string, error)
	requester   attributes.Requester
	// mayUse asks about the verb use; nil says no.
	mayUse func(ctx context.Context, constraint, namespace, account string) (bool, error)
}

func (o *sccReview) setting(ctx context.Context) (*sccSetting, error) {
	namespace, chosen, err := o.config.ToRawKubeConfigLoader().Namespace()
	if err != nil && len(o.constraints) == 0 {
		return nil, err
	}
	if len(o.constraints) > 0 {
		return o.offline(namespace, chosen)
	}
	reader, err := o.connectAsSelf()
	if err != nil {
		return nil, err
	}
	caller, err := o.connect()
	if err != nil {
		return nil, err
	}
	setting := &sccSetting{namespace: namespace, chosen: chosen, mayUse: func(ctx context.Context, constraint, namespace, account string) (bool, error) {
		if account != "" {
			return reader.AccountMayUse(ctx, constraint, namespace, account)
		}
		return caller.MayUseConstraint(ctx, constraint, namespace)
	}}
	if setting.constraints, err = reader.Constraints(ctx); err != nil {
		return nil, err
	}
	if setting.requester, err = caller.Caller(ctx); err != nil {
		return nil, err
	}
	setting.annotations = func(ctx context.Context, namespace string) (map[string]string, error) {
		ns, err := reader.Namespace(ctx, namespace)
		if err != nil {
			return nil, err
		}
		return ns.Annotations, nil
	}
	return setting.prepare()
}

func (o *sccReview) offline(namespace string, chosen bool) (*sccSetting, error) {
	setting := &sccSetting{namespace: namespace, chosen: chosen}
	if user := o.config.Impersonate; user != nil {
		setting.requester.Name = *user
	}
	if groups := o.config.ImpersonateGroup; groups != nil {
		setting.requester.Groups = *groups
	}
	var err error
	if setting.constraints, err = o.constraintsInFiles(); err != nil {
		return nil, err
	}
	var annotations map[string]string
	setting.annotations = func(context.Context, string) (map[string]string, error) { return annotations, nil }
	if o.namespaceFile != "" {
		found, err := source.Objects(o.namespaceFile)
		if err != nil {
			return nil, err
		}
		i := slices.IndexFunc(found, func(object *unstructured.Unstructured) bool { return object.GetKind() == "Namespace" })
		if i < 0 {
			return nil, fmt.Errorf("there is no Namespace in %s", o.namespaceFile)
		}
		if chosen && namespace != found[i].GetName() {
			return nil, fmt.Errorf("--namespace is %s, and in %s is Namespace %s: leave one out", namespace, o.namespaceFile, found[i].GetName())
		}
		setting.namespace, setting.chosen, annotations = found[i].GetName(), true, found[i].GetAnnotations()
	}
	return setting.prepare()
}

// constraintsInFiles are in place of a cluster's.
func (o *sccReview) constraintsInFiles() ([]*v1alpha1.SecurityContextConstraints, error) {
	objects, err := source.Objects(o.constraints...)
	if err != nil {
		return nil, err
	}
	var constraints []*v1alpha1.SecurityContextConstraints
	names := map[string]bool{}
	for _, object := range objects {
		name := object.GetName()
		switch {
		case object.GetKind() != "SecurityContextConstraints":
			continue
		case object.GetAPIVersion() != v1alpha1.GroupVersion.String():
			return nil, fmt.Errorf("SecurityContextConstraints %s: apiVersion is %s: change it to %s", name, object.GetAPIVersion(), v1alpha1.GroupVersion)
		case name == "":
			return nil, errors.New("there are SecurityContextConstraints without metadata.name in the files: give them one")
		case names[name]:
			return nil, fmt.Errorf("SecurityContextConstraints %s are in the files twice: leave one out", name)
		}
		names[name] = true
		constraint := &v1alpha1.SecurityContextConstraints{}
		if err := o.decode(object, object.Object, constraint); err != nil {
			return nil, err
		}
		constraints = append(constraints, constraint)
	}
	return constraints, nil
}

// prepare puts the constraints in the order in which they are tried.
func (s *sccSetting) prepare() (*sccSetting, error) {
	if len(s.constraints) == 0 {
		return nil, errors.New("there are no SecurityContextConstraints, without which every pod is admitted as it is")
	}
	for i := range s.constraints {
		s.constraints[i] = scc.Defaulted(s.constraints[i])
	}
	scc.Sort(s.constraints)
	return s, nil
}

// review judges an object by the template of its pods.
func (o *sccReview) review(ctx context.Context, s *sccSetting, object *unstructured.Unstructured, template map[string]any) (sccAnswer, error) {
	pod, err := o.podOf(object, template)
	if err != nil {
		return sccAnswer{}, err
	}
	pod.Namespace = s.namespace
	if said := object.GetNamespace(); said != "" && said != s.namespace {
		if s.chosen {
			return sccAnswer{}, fmt.Errorf("%s %s is in namespace %s, and %s was asked about: leave one out", object.GetKind(), object.GetName(), said, s.namespace)
		}
		pod.Namespace = said
	}
	if o.account != "" {
		pod.Spec.ServiceAccountName = o.account
	}
	if pod.Spec.ServiceAccountName == "" {
		pod.Spec.ServiceAccountName = "default" // as admission does
	}
	if scc.Exempt(pod) || slices.Contains(scc.ExemptNamespaces, pod.Namespace) {
		return sccAnswer{Allowed: true, Pod: pod, Reasons: []scc.Reason{}, given: pod}, nil
	}
	annotations, err := s.annotations(ctx, pod.Namespace)
	if err != nil {
		return sccAnswer{}, err
	}
	var failure error
	verdict := scc.Review(scc.Request{Pod: pod, UnknownVolumes: scc.UnknownVolumes(template), NamespaceAnnotations: annotations, Constraints: s.constraints,
		Usable: func(constraint *v1alpha1.SecurityContextConstraints) string {
			subject, err := s.usable(ctx, constraint, pod.Namespace, pod.Spec.ServiceAccountName)
			failure = errors.Join(failure, err)
			return subject
		}})
	if failure != nil {
		return sccAnswer{}, failure
	}
	one := sccAnswer{Allowed: verdict.Allowed(), Reasons: []scc.Reason{}, given: pod}
	if !one.Allowed {
		one.Reasons = append(one.Reasons, verdict.Reasons...)
		return one, nil
	}
	one.Constraint, one.Subject, one.Pod, one.before = &verdict.Constraint, &verdict.Subject, verdict.Pod, verdict.Reasons
	written := maps.Clone(verdict.Pod.Annotations)
	if written == nil {
		written = map[string]string{}
	}
	written[v1alpha1.SCCAnnotation], written[v1alpha1.SCCSubjectAnnotation] = verdict.Constraint, verdict.Subject
	one.Pod.Annotations = written
	return one, nil
}

// usable asks about the service account first.
func (s *sccSetting) usable(ctx context.Context, constraint *v1alpha1.SecurityContextConstraints, namespace, account string) (string, error) {
	service := attributes.Requester{
		Name:   "system:serviceaccount:" + namespace + ":" + account,
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace},
	}
	switch {
	case scc.Lists(constraint, service):
		return scc.ServiceAccountSubject, nil
	case s.mayUse != nil:
		if allowed, err := s.mayUse(ctx, constraint.Name, namespace, account); allowed || err != nil {
			return scc.ServiceAccountSubject, err
		}
	}
	switch {
	case scc.Lists(constraint, s.requester):
		return scc.UserSubject, nil
	case s.mayUse != nil:
		if allowed, err := s.mayUse(ctx, constraint.Name, namespace, ""); allowed || err != nil {
			return scc.UserSubject, err
		}
	}
	return "", nil
}

func (o *sccReview) write(answers []sccAnswer) error {
	var all any = answers
	if len(answers) == 1 {
		all = answers[0]
	}
	switch o.format {
	case jsonFormat:
		return output.JSON(o.Out, all)
	case "yaml":
		return output.YAMLStream(o.Out, []any{all})
	}
	for i, one := range answers {
		if i > 0 {
			output.Line(o.Out, "")
		}
		if err := o.explain(one); err != nil {
			return err
		}
	}
	return nil
}

func (o *sccReview) explain(one sccAnswer) error {
	if !one.Allowed {
		output.Line(o.Out, "%s is not admitted by any constraint:", one.object)
		table := output.Table{Columns: []string{"Constraint", "Field", "Message"}}
		for _, reason := range one.Reasons {
			table.Rows = append(table.Rows, []string{reason.Constraint, orElse(reason.Field, "-"), reason.Message})
		}
		return table.Print(o.Out, false)
	}
	if one.Constraint == nil {
		output.Line(o.Out, "%s is admitted as it is: constraints say nothing about Windows, nor about the namespaces %s", one.object, strings.Join(scc.ExemptNamespaces, " and "))
		return nil
	}
	output.Line(o.Out, "%s is admitted by %s, by right of the %s", one.object, *one.Constraint,
		map[string]string{scc.UserSubject: "user", scc.ServiceAccountSubject: "service account"}[*one.Subject])
	sets, err := whatIsSet(one.given, one.Pod)
	if err != nil || len(sets) == 0 {
		return err
	}
	table := output.Table{Columns: []string{"Sets", "To"}}
	for _, field := range slices.Sorted(maps.Keys(sets)) {
		table.Rows = append(table.Rows, []string{field, sets[field]})
	}
	if err := table.Print(o.Out, false); err != nil {
		return err
	}
	for _, reason := range one.before {
		o.note("before: %s", reason)
	}
	return nil
}

// whatIsSet returns the fields of security contexts that differ, with their values.
func whatIsSet(before, after *corev1.Pod) (map[string]string, error) {
	sets := map[string]string{}
	flatten := func(pod *corev1.Pod, into map[string]string) error {
		data, err := json.Marshal(pod.Spec)
		if err != nil {
			return err
		}
		var spec map[string]any
		if err := json.Unmarshal(data, &spec); err != nil {
			return err
		}
		flattenInto(into, "spec", spec)
		return nil
	}
	old := map[string]string{}
	if err := errors.Join(flatten(before, old), flatten(after, sets)); err != nil {
		return nil, err
	}
	maps.DeleteFunc(sets, func(field, value string) bool { return old[field] == value })
	return sets, nil
}

func flattenInto(into map[string]string, path string, value any) {
	switch value := value.(type) {
	case map[string]any:
		for key, inner := range value {
			flattenInto(into, path+"."+key, inner)
		}
	case []any:
		if len(value) > 0 {
			if _, objects := value[0].(map[string]any); objects {
				for i, inner := range value {
					flattenInto(into, fmt.Sprintf("%s[%d]", path, i), inner)
				}
				return
			}
		}
		data, _ := json.Marshal(value) // it came as JSON
		into[path] = string(data)
	default:
		data, _ := json.Marshal(value)
		into[path] = strings.Trim(string(data), `"`)
	}
}

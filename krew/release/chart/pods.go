package chart

import (
	"fmt"
	"slices"
)

// workload is a Deployment whose pods have values in the chart.
type workload struct {
	// deployment is its name, and key the key of its values.
	deployment, key string
}

var workloads = []workload{{"nstpl-operator", "operator"}, {"nstpl-sync", "sync"}}

var imagePullSecrets = value{
	path: "imagePullSecrets", fallback: []any{}, schema: listOf("object"),
	description: "Secrets with the credentials of the images' registry, such as `[{name: registry}]`.",
}

// parameterize has a Deployment take the settings of its pods from values. It returns these values, with those of the
// manifest as defaults.
func (c Chart) parameterize(objects []*object, w workload) ([]value, error) {
	i := slices.IndexFunc(objects, func(o *object) bool { return o.kind == "Deployment" && o.name == w.deployment })
	if i < 0 {
		return nil, fmt.Errorf("the manifests have no Deployment %s", w.deployment)
	}
	spec := child(objects[i].tree, "spec")
	pod := child(child(spec, "template"), "spec")
	containers, _ := pod["containers"].([]any)
	if len(containers) != 1 {
		return nil, fmt.Errorf("the chart sets the values of one container, and Deployment %s has %d",
			w.deployment, len(containers))
	}
	container, _ := containers[0].(map[string]any)
	arguments, ok := container["args"].([]any)
	image, known := c.Images[w.deployment]
	if !ok || !known {
		return nil, fmt.Errorf("the container of Deployment %s needs arguments and an image", w.deployment)
	}
	values := ".Values." + w.key
	parameters := []value{
		{w.key + ".replicas", spec["replicas"], typed("integer"), "The number of replicas."},
		{w.key + ".image.repository", image.Repository, typed("string"), "The image, without tag and digest."},
		{
			w.key + ".image.tag", "", typed("string"),
			"The tag of another image. If `tag` and `digest` are empty, it is the image of this release, by its digest.",
		},
		{w.key + ".image.digest", "", typed("string"), "The digest of another image, such as `sha256:…`."},
		{
			w.key + ".image.pullPolicy", "",
			map[string]any{"type": "string", "enum": []any{"", "Always", "IfNotPresent", "Never"}},
			"When nodes pull the image. If it is empty, Kubernetes decides.",
		},
		{
			w.key + ".extraArgs", []any{}, listOf("string"),
			"More arguments of the program.",
		},
		w.setting("resources", container["resources"], map[string]any{}, typed("object"), "The requests and limits of the container."),
		w.setting("nodeSelector", pod["nodeSelector"], map[string]any{}, typed("object"), "Labels of the nodes on which the pods may run."),
		w.setting("tolerations", pod["tolerations"], []any{}, listOf("object"), "Taints of nodes that the pods tolerate."),
		w.setting("affinity", pod["affinity"], map[string]any{}, typed("object"), "On which nodes the scheduler places the pods."),
		{
			w.key + ".priorityClassName", "", typed("string"),
			"The PriorityClass of the pods. If it is empty, it is the cluster's default.",
		},
	}
	spec["replicas"] = expression(values + ".replicas")
	container["image"] = expression(fmt.Sprintf("include %q (dict %q %s.image %q %q)", Name+".image", "image", values,
		"released", c.tagAndDigest(image)))
	container["imagePullPolicy"] = optional{values + ".image.pullPolicy", expression(values + ".image.pullPolicy")}
	container["args"] = append(arguments, fromValue(values+".extraArgs"))
	container["resources"] = fromValue(values + ".resources")
	for _, field := range []string{"nodeSelector", "tolerations", "affinity"} {
		pod[field] = fromValue(values + "." + field)
	}
	pod["priorityClassName"] = optional{
		values + ".priorityClassName", expression(values + ".priorityClassName | quote"),
	}
	pod["imagePullSecrets"] = fromValue(".Values.imagePullSecrets")
	return parameters, nil
}

// setting returns a value whose default is that of the manifest, or empty if the manifest has none.
func (w workload) setting(name string, current, empty any, schema map[string]any, description string) value {
	if current == nil {
		current = empty
	}
	return value{w.key + "." + name, current, schema, description}
}

func (c Chart) tagAndDigest(image Image) string {
	if image.Digest == "" {
		return ":" + c.Version
	}
	return ":" + c.Version + "@" + image.Digest
}

func child(parent map[string]any, key string) map[string]any {
	found, _ := parent[key].(map[string]any)
	return found
}

// labelMonitors adds labels from a value to the objects of the Prometheus operator. A Prometheus may select its
// monitors and rules by labels.
func labelMonitors(objects []*object) []value {
	const path = "prometheus.labels"
	for _, o := range objects {
		if o.kind != "ServiceMonitor" && o.kind != "PrometheusRule" {
			continue
		}
		metadata := child(o.tree, "metadata")
		labels := child(metadata, "labels")
		if labels == nil {
			metadata["labels"] = fromValue(".Values." + path)
			continue
		}
		labels[splice] = fromValue(".Values." + path)
	}
	return []value{{
		path, map[string]any{}, typed("object"),
		"Labels of the ServiceMonitors and PrometheusRules, if your Prometheus selects them by a label.",
	}}
}

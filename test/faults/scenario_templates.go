package main

const configMap = `
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {namespace: $(NAMESPACE), value: "1"}
`

// binding gives the run's user a role.
func binding(name, role string) string {
	return `
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: ` + name + `}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: ` + role + `}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: RUN-user}]
`
}

const unownedFields = `
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: robot}
secrets: []
`

// populate: namespaces are created that templates select.
func populate() scenario {
	return scenario{
		name: "populate",
		before: func(r *run) {
			r.declare("first", configMap+binding("readers", "view")+unownedFields)
			r.declare("second", limits)
		},
		do: func(r *run) { r.createNamespaces() },
	}
}

const limits = `
---
apiVersion: v1
kind: LimitRange
metadata: {name: limits}
spec: {limits: [{type: Container, default: {memory: 1Gi}}]}
`

// fixed can't be changed in place, and may be replaced.
func fixed(value string) string {
	return `
---
apiVersion: v1
kind: ConfigMap
metadata: {name: fixed, annotations: {policy/replace: "true"}}
immutable: true
data: {value: "` + value + `"}
`
}

// edit: a template changes; some objects are replaced, one goes and one comes.
func edit() scenario {
	return scenario{
		name: "edit",
		before: func(r *run) {
			r.declare("t", configMap+binding("readers", "view")+fixed("1")+plain("goes"))
			r.createNamespaces()
		},
		do: func(r *run) { r.edit("t", binding("readers", "edit")+fixed("2")+configMap+plain("comes")) },
	}
}

func plain(name string) string {
	return `
---
apiVersion: v1
kind: ConfigMap
metadata: {name: ` + name + `}
data: {value: "1"}
`
}

// adopt: what a template declares was there before, made by others. Later it is not declared any more, and stays.
func adopt() scenario {
	return scenario{
		name: "adopt",
		before: func(r *run) {
			r.createNamespaces(stageLabel, "0")
			r.foreign(`
{apiVersion: v1, kind: ConfigMap, metadata: {name: other-keys}, data: {theirs: "1"}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: same}, data: {value: "1"}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: conflict}, data: {value: theirs}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: robot}}` + binding("bound", "view"))
		},
		do: func(r *run) {
			r.declare("t", plain("other-keys")+plain("same")+plain("conflict")+binding("bound", "view")+unownedFields+plain("ours"), deleting)
		},
		then: func(r *run) { r.edit("t", configMap) },
	}
}

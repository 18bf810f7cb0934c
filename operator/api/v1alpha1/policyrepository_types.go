package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PolicyRepository is a tree of policies, in Git or in an artifact of Flux, that the cluster follows: nstpl-sync
// applies each new commit of the tree that breaks no rule, keeps its objects as they are declared, and deletes the
// objects that it no longer declares.
//
// Example:
//
//	apiVersion: policy.nstpl.dev/v1alpha1
//	kind: PolicyRepository
//	metadata:
//	  name: foo-corp
//	spec:
//	  git:
//	    url: https://git.example.com/policies.git
//	    ref:
//	      branch: main
//	    secretRef:
//	      name: foo-corp-git
//	  path: foo-corp
//	  interval: 1m
//	  hint:
//	    secretRef:
//	      name: foo-corp-hint
//	  existingNamespaces: Ignore
//	  deletionLimit:
//	    namespaces: 1
//	    percent: 10
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=polrepo,path=policyrepositories
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Applied",type=string,JSONPath=`.status.commits.applied`
// +kubebuilder:printcolumn:name="Synced",type=date,JSONPath=`.status.lastSyncTime`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type PolicyRepository struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says where the tree is, and how the cluster follows it.
	// +required
	Spec PolicyRepositorySpec `json:"spec"`
	// status says which commit is in force, and why a newer one is not. nstpl-sync writes it.
	// +optional
	Status PolicyRepositoryStatus `json:"status,omitempty,omitzero"`
}

// PolicyRepositoryList is a list of PolicyRepositories.
//
// +kubebuilder:object:root=true
type PolicyRepositoryList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []PolicyRepository `json:"items"`
}

// ExistingNamespaces says what becomes of a declared namespace that exists already.
//
// +kubebuilder:validation:Enum=Ignore;Adopt
type ExistingNamespaces string

const (
	// ExistingIgnore leaves the namespace as it is. The status lists it.
	ExistingIgnore ExistingNamespaces = "Ignore"
	// ExistingAdopt makes the namespace a part of the tree. Roles, RoleBindings and ResourceQuotas in it that the tree
	// does not declare are deleted.
	ExistingAdopt ExistingNamespaces = "Adopt"
)

// PolicyRepositorySpec says where a tree of policies is, and how the cluster follows it.
//
// +kubebuilder:validation:XValidation:rule="has(self.git) != has(self.sourceRef)",message="spec has exactly one of git and sourceRef"
type PolicyRepositorySpec struct {
	// git is the Git repository with the tree, which nstpl-sync fetches itself.
	// +optional
	Git *GitSource `json:"git,omitempty"`

	// sourceRef names an object of Flux whose artifact contains the tree. nstpl-sync follows each new artifact of it.
	// +optional
	SourceRef *ArtifactSource `json:"sourceRef,omitempty"`

	// path is the directory of the tree in the repository or artifact, for example clusters/foo-corp. Its last element
	// is the name of the tree and of its root PolicySpace. Directories in it are PolicySpaces and namespaces.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('/') && !self.split('/').exists(part, part == '' || part == '.' || part == '..')",message="path is relative to the root of the repository, has no empty, . or .. element, and does not end with /"
	Path string `json:"path"`

	// interval is how often the source is asked for a new commit. The default is one minute, the minimum ten seconds.
	// The objects of Flux that sourceRef names are watched besides, so that a new artifact is followed at once.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('10s') && duration(self) <= duration('24h')",message="interval is between 10s and 24h"
	Interval *metav1.Duration `json:"interval,omitempty"`

	// hint lets the Git server say that there is a new commit, which is then fetched at once: by POST /hint/NAME to the
	// Service nstpl-sync, where NAME is the name of the PolicyRepository.
	// +optional
	Hint *RepositoryHint `json:"hint,omitempty"`

	// suspend stops the synchronization until it is set to false: no commit is fetched, and nothing is repaired or
	// deleted.
	// +optional
	Suspend bool `json:"suspend,omitempty"`

	// serviceAccountName names a ServiceAccount in the namespace nstpl-system with whose permissions the objects of the
	// tree are created, changed and deleted. The default is that of nstpl-sync, which may write everything that a tree
	// can declare. A commit that needs more than the ServiceAccount may do fails, and status.failures says why.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self != 'nstpl-operator'",message="nstpl-operator is the ServiceAccount of the operator, whose requests are not checked: use another one"
	ServiceAccountName string `json:"serviceAccountName,omitempty"`

	// existingNamespaces says what a declared namespace becomes that exists already. With Ignore, which is the default,
	// it stays as it is, and the status lists it. With Adopt, it becomes a part of the tree, and undeclared Roles,
	// RoleBindings and ResourceQuotas in it are deleted.
	// +optional
	// +kubebuilder:default=Ignore
	ExistingNamespaces ExistingNamespaces `json:"existingNamespaces,omitempty"`

	// deletionLimit is how many namespaces one commit deletes without confirmation. If a commit declares fewer
	// namespaces than that would leave, all its other changes are made, and the namespaces remain until someone
	// confirms the commit with kubectl nstpl sync confirm, or a commit declares them again. Another limit does not
	// change that.
	// +optional
	DeletionLimit *DeletionLimit `json:"deletionLimit,omitempty"`
}

// DeletionLimit is how many namespaces are deleted without confirmation. Both limits apply. The last namespace of a
// tree is deleted without confirmation only if the commit creates another one.
type DeletionLimit struct {
	// namespaces is a number of namespaces. The default is 1. With 0, each deletion needs a confirmation.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Namespaces *int32 `json:"namespaces,omitempty"`
	// percent is a share of the tree's namespaces, rounded down, but at least one namespace. The default is 10.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Percent *int32 `json:"percent,omitempty"`
}

// GitSource is a Git repository.
type GitSource struct {
	// url is the address of the repository: https://HOST/PATH or ssh://USER@HOST/PATH.
	// +required
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="self.startsWith('https://') || self.startsWith('ssh://')",message="url begins with https:// or ssh://"
	URL string `json:"url"`

	// ref says which commit to follow. The default is the branch main.
	// +optional
	Ref *GitReference `json:"ref,omitempty"`

	// secretRef names a Secret in the namespace nstpl-system with the credentials. For https, its keys are username and
	// password, or bearerToken, and ca.crt for an own certificate authority. For ssh, they are identity, known_hosts,
	// and password for the passphrase of the key. known_hosts is mandatory. These are the keys of Flux.
	// +optional
	SecretRef *SecretReference `json:"secretRef,omitempty"`

	// verify makes the signature of commits mandatory.
	// +optional
	Verify *GitVerification `json:"verify,omitempty"`
}

// ArtifactSource names an object of Flux: a GitRepository, OCIRepository, Bucket or ExternalArtifact. Its
// status.artifact must have a digest.
type ArtifactSource struct {
	// apiVersion is source.toolkit.fluxcd.io/v1.
	// +required
	// +kubebuilder:validation:Enum=source.toolkit.fluxcd.io/v1
	APIVersion string `json:"apiVersion"`
	// kind is the kind of the object.
	// +required
	// +kubebuilder:validation:Enum=GitRepository;OCIRepository;Bucket;ExternalArtifact
	Kind string `json:"kind"`
	// name is the name of the object.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	Name string `json:"name"`
	// namespace is the namespace of the object.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Namespace string `json:"namespace"`
}

// GitReference says which commit of a repository to follow. Exactly one field is set.
//
// +kubebuilder:validation:XValidation:rule="[has(self.branch), has(self.tag), has(self.commit)].filter(isSet, isSet).size() == 1",message="ref has exactly one of branch, tag and commit"
type GitReference struct {
	// branch is the name of a branch, whose newest commit is applied.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	Branch string `json:"branch,omitempty"`
	// tag is the name of a tag.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	Tag string `json:"tag,omitempty"`
	// commit is the SHA-1 hash of a commit, in full.
	// +optional
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{40}$`
	Commit string `json:"commit,omitempty"`
}

// SecretReference names a Secret in the namespace nstpl-system.
type SecretReference struct {
	// name is the name of the Secret.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// RepositoryHint says who may hint at a new commit.
type RepositoryHint struct {
	// secretRef names a Secret in the namespace nstpl-system. Its key token is a text that the Git server knows too: as
	// the secret of a webhook of GitHub, Gitea, Forgejo or Bitbucket, or as the signing token or secret token of a
	// webhook of GitLab. Other senders write sha256= and the HMAC of the body in hexadecimal digits into the header
	// X-Signature. A changed token is in force after at most 30 seconds.
	// +required
	SecretRef SecretReference `json:"secretRef"`
}

// GitVerification says by whom commits must be signed.
type GitVerification struct {
	// secretRef names a Secret in the namespace nstpl-system whose values are public keys: PGP keys in armor, or SSH
	// keys as in authorized_keys. A commit that none of them signed is not applied.
	// +required
	SecretRef SecretReference `json:"secretRef"`
}

// PolicyRepositoryStatus says which commit is in force, and why a newer one is not.
type PolicyRepositoryStatus struct {
	// observedGeneration is the metadata.generation that this status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// commits are the commits that the steps of the synchronization have reached.
	// +optional
	Commits RepositoryCommits `json:"commits,omitempty,omitzero"`

	// tree is the name of the tree whose objects are in the cluster.
	// +optional
	Tree string `json:"tree,omitempty"`

	// path is the directory of that tree. If spec.path was changed, it is the one before until a commit is applied.
	// +optional
	Path string `json:"path,omitempty"`

	// namespaces is the number of namespaces that the applied commit declares.
	// +optional
	Namespaces int32 `json:"namespaces"`

	// lastSyncTime is when the tree was last compared with the cluster and in force as a whole.
	// +optional
	LastSyncTime *metav1.Time `json:"lastSyncTime,omitempty"`

	// requestedAt is the last request of kubectl nstpl sync now that was served.
	// +optional
	RequestedAt string `json:"requestedAt,omitempty"`

	// pendingDeletions are namespaces that a commit no longer declares, and that remain until someone confirms it.
	// +optional
	PendingDeletions *PendingDeletions `json:"pendingDeletions,omitempty"`

	// pendingRollback is a signed commit that is older than the one in force. It is not applied until someone confirms
	// it. Only repositories with spec.git.verify have one.
	// +optional
	PendingRollback *PendingRollback `json:"pendingRollback,omitempty"`

	// violations are the first 20 violations of rules in the commit that was fetched last.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	Violations []RepositoryViolation `json:"violations,omitempty"`

	// violationCount is the number of all violations in that commit.
	// +optional
	ViolationCount int32 `json:"violationCount,omitempty"`

	// failures are the first 20 objects that could not be applied or deleted.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	Failures []RepositoryFailure `json:"failures,omitempty"`

	// contested are the first 20 objects that do not stay as the tree declares them, because another client changes
	// them again and again, or admission when they are stored.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	Contested []RepositoryFailure `json:"contested,omitempty"`

	// unmanagedNamespaces are the first 20 namespaces that the tree declares and that existed before.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	UnmanagedNamespaces []string `json:"unmanagedNamespaces,omitempty"`

	// history are the last five commits that were applied, the newest first.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=5
	History []AppliedCommit `json:"history,omitempty"`

	// conditions contains Ready, Reconciling and Stalled, as kstatus defines them for every kind.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// RepositoryCommits are commits, each named by its hash. For a sourceRef to a GitRepository whose artifact contains
// one commit as it is, that is the hash of this commit. For other artifacts, it is the digest, such as sha256:1a2b….
type RepositoryCommits struct {
	// fetched is the newest commit that was downloaded.
	// +optional
	Fetched string `json:"fetched,omitempty"`
	// vetted is the newest commit that breaks no rule.
	// +optional
	Vetted string `json:"vetted,omitempty"`
	// applied is the commit that is in force.
	// +optional
	Applied string `json:"applied,omitempty"`
}

// Reasons of the condition Ready of a PolicyRepository, besides those of package files.
const (
	// RepositorySynced means that the newest commit is in force.
	RepositorySynced = "Synced"
	// RepositorySuspended means that spec.suspend is set.
	RepositorySuspended = "Suspended"
	// RepositoryTreeTaken means that another PolicyRepository has a tree of the same name.
	RepositoryTreeTaken = "TreeTaken"
	// RepositoryProgressing means that the newest commit is being fetched or applied.
	RepositoryProgressing = "Progressing"
	// RepositoryFetchFailed means that the newest commit cannot be fetched for a reason that package files has not.
	RepositoryFetchFailed = "FetchFailed"
	// RepositoryViolations means that the newest commit breaks rules. status.violations lists them.
	RepositoryViolations = "Violations"
	// RepositoryRollbackPending means that the newest commit is older than the one in force, and waits for someone to
	// confirm it.
	RepositoryRollbackPending = "RollbackPending"
	// RepositoryObjectsFailed means that objects could not be applied or deleted. status.failures lists them.
	RepositoryObjectsFailed = "ObjectsFailed"
	// RepositoryDeletionsPending means that the deletion of namespaces waits for someone to confirm it.
	RepositoryDeletionsPending = "DeletionsPending"
	// RepositoryContested means that objects do not stay as the tree declares them. status.contested lists them.
	RepositoryContested = "Contested"
)

// PendingDeletions are namespaces whose deletion needs a confirmation.
type PendingDeletions struct {
	// commit is the commit to confirm.
	Commit string `json:"commit"`
	// namespaces are the first 20 of these namespaces.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	Namespaces []string `json:"namespaces"`
	// total is the number of all of these namespaces.
	Total int32 `json:"total"`
	// digest identifies all of these namespaces. A confirmation is void if it was given while others waited.
	// +optional
	Digest string `json:"digest,omitempty"`
}

// PendingRollback is a commit that is older than the one in force.
type PendingRollback struct {
	// commit is the commit to confirm.
	Commit string `json:"commit"`
	// committed is when it was committed, as the committer says.
	Committed metav1.Time `json:"committed"`
	// inForce is the commit in force.
	InForce string `json:"inForce"`
	// inForceCommitted is when that was committed, as its committer says.
	InForceCommitted metav1.Time `json:"inForceCommitted"`
}

// RepositoryViolation is the violation of a rule.
type RepositoryViolation struct {
	// path is the path of the file or directory, which begins with the name of the tree.
	Path string `json:"path"`
	// line is the line in the file, or 0.
	// +optional
	Line int32 `json:"line,omitempty"`
	// rule is the id of the rule, as in docs/vet.md.
	// +optional
	Rule string `json:"rule,omitempty"`
	// message says what is wrong.
	Message string `json:"message"`
}

// RepositoryFailure is an object that could not be applied or deleted, or that does not stay as it is declared.
type RepositoryFailure struct {
	// object is the kind and the name, for example clusterrole.rbac.authorization.k8s.io/viewer.
	Object string `json:"object"`
	// message says why.
	Message string `json:"message"`
}

// AppliedCommit is a commit that was in force.
type AppliedCommit struct {
	// commit is the hash, or the digest of an artifact.
	Commit string `json:"commit"`
	// author is the name of the author.
	// +optional
	Author string `json:"author,omitempty"`
	// subject is the first line of the message, or the revision of an artifact, at most 72 characters.
	// +optional
	Subject string `json:"subject,omitempty"`
	// time is when it was applied.
	Time metav1.Time `json:"time"`
}

package repository

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/inventory"
)

// record says which objects were created for the tree of a PolicyRepository. It is stored as a ConfigMap in the
// operator's namespace.
type record struct {
	stored *corev1.ConfigMap
	// created are the UIDs of these objects, and pending the objects that may have been created without their UID being
	// recorded.
	created map[types.UID]bool
	pending map[inventory.ID]bool
	// deletions are the decisions about created namespaces that the tree no longer declares.
	deletions inventory.Deletions
	// trees are the names of the trees for which pending objects were to be created. It is more than one if the tree
	// was renamed.
	trees map[string]bool
	// inForce is the commit or artifact that was last brought into force, maybe not completely, or empty if none was.
	// Its time is that of the last commit whose time is known.
	inForce committed
}

// committed is a commit, with the time that its committer says, and a directory of it. The directory is empty if it is
// unknown: earlier versions did not record it.
type committed struct {
	commit string
	at     time.Time
	path   string
}

// String returns a line of the record.
func (c committed) String() string {
	if c.commit == "" {
		return ""
	}
	line := c.commit + " " + c.at.UTC().Format(time.RFC3339)
	if c.path != "" {
		line += " " + c.path
	}
	return line + "\n"
}

// parseCommitted parses a line of the record. It returns an empty commit if there is none. A time that is not valid is
// unknown.
func parseCommitted(line string) committed {
	commit, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
	text, path, _ := strings.Cut(rest, " ")
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		at = time.Time{}
	}
	return committed{commit, at, path}
}

// Keys of the ConfigMap. The values have one UID, object, name or commit in each line. The UID of a created object is
// in exactly one of the first five.
const (
	createdKey   = "created"
	waitingKey   = "waiting"
	keptKey      = "kept"
	decidedKey   = "decided"
	confirmedKey = "confirmed"
	pendingKey   = "pending"
	treesKey     = "trees"
	inForceKey   = "in-force"
)

// maxRecordSize is the size in bytes of the data of a ConfigMap: 28,000 created objects.
const maxRecordSize = corev1.MaxSecretSize

// uidSize is the size in bytes of the line of a UID.
const uidSize = 37

// pendingSize returns how many bytes an object that may have been created takes at most: its UID may be recorded before
// its name is removed.
func pendingSize(id inventory.ID) int { return len(pendingLine(id)) + 1 + uidSize }

// errFull is why an object is not created.
var errFull = errors.New("the record of the objects that were created for the tree is full, so it is not created: " +
	"divide the tree among several PolicyRepositories")

// inForceSize is the size in bytes that the line of the commit in force takes at most: spec.path has up to 512
// characters. A record that objects fill must take a new commit and a longer path.
const inForceSize = 4*512 + 256

// room returns how many bytes further pending objects of a tree may take.
func (r *record) room(tree string) int {
	inForce := inForceSize - len(r.inForce.String())
	return maxRecordSize - sizeOf(r.data()) - inForce - uidSize*len(r.pending) - len(tree) - 1
}

func recordName(repository string) string { return "nstpl-sync-" + repository }

// readRecord reads the record of a PolicyRepository from the API server. One of an earlier PolicyRepository of the same
// name counts as empty.
func readRecord(ctx context.Context, live client.Reader, repository *v1alpha1.PolicyRepository) (*record, error) {
	r := &record{created: map[types.UID]bool{}, pending: map[inventory.ID]bool{}, trees: map[string]bool{}}
	stored := &corev1.ConfigMap{}
	key := client.ObjectKey{Namespace: v1alpha1.OperatorNamespace, Name: recordName(repository.Name)}
	err := live.Get(ctx, key, stored)
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("read the record of PolicyRepository %s: %w", repository.Name, err)
	}
	if err == nil {
		r.stored = stored
	}
	if r.stored == nil || !metav1.IsControlledBy(r.stored, repository) {
		return r, nil
	}
	r.readDeletions(stored.Data)
	r.pending = pendingOf(stored.Data[pendingKey])
	for tree := range strings.FieldsSeq(stored.Data[treesKey]) {
		r.trees[tree] = true
	}
	r.inForce = parseCommitted(stored.Data[inForceKey])
	return r, nil
}

// readDeletions reads the created objects, and the decisions about them.
func (r *record) readDeletions(data map[string]string) {
	r.deletions = inventory.Deletions{
		Waiting: uids(data[waitingKey]), Kept: uids(data[keptKey]),
		Decided: uids(data[decidedKey]), Confirmed: uids(data[confirmedKey]),
	}
	maps.Copy(r.created, uids(data[createdKey]))
	for _, decided := range decisions(r.deletions) {
		maps.Copy(r.created, decided)
	}
}

// decisions returns the sets of UIDs of decisions.
func decisions(d inventory.Deletions) []map[types.UID]bool {
	return []map[types.UID]bool{d.Waiting, d.Kept, d.Decided, d.Confirmed}
}

// write stores the record if it changed. It fails with a conflict if another process has written the record.
func (r *record) write(ctx context.Context, c client.Client, repository *v1alpha1.PolicyRepository) error {
	if len(r.pending) == 0 {
		clear(r.trees)
	}
	wanted := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: v1alpha1.OperatorNamespace, Name: recordName(repository.Name),
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: v1alpha1.GroupVersion.String(), Kind: "PolicyRepository",
				Name: repository.Name, UID: repository.UID, Controller: new(true),
			}},
		},
		Data: r.data(),
	}
	if size := sizeOf(wanted.Data); size > maxRecordSize {
		return fmt.Errorf("PolicyRepository %s: the record of the objects that were created for its tree would take %d KiB, "+
			"and the API server stores at most %d KiB: divide the tree among several PolicyRepositories",
			repository.Name, size>>10, maxRecordSize>>10)
	}
	var err error
	switch {
	case r.stored == nil:
		err = c.Create(ctx, wanted)
	case equality.Semantic.DeepEqual(r.stored.Data, wanted.Data) &&
		equality.Semantic.DeepEqual(r.stored.OwnerReferences, wanted.OwnerReferences):
		return nil
	default:
		wanted.ResourceVersion, wanted.UID = r.stored.ResourceVersion, r.stored.UID
		err = c.Update(ctx, wanted)
	}
	if err != nil {
		return fmt.Errorf("record what was created for PolicyRepository %s: %w", repository.Name, err)
	}
	r.stored = wanted
	return nil
}

func (r *record) data() map[string]string {
	created := maps.Clone(r.created)
	for _, decided := range decisions(r.deletions) {
		for uid := range decided {
			delete(created, uid)
		}
	}
	data := map[string]string{createdKey: lines(created), pendingKey: lines(pendingLines(r.pending))}
	for key, value := range map[string]string{
		waitingKey: lines(r.deletions.Waiting), keptKey: lines(r.deletions.Kept),
		decidedKey: lines(r.deletions.Decided), confirmedKey: lines(r.deletions.Confirmed),
		treesKey: lines(r.trees), inForceKey: r.inForce.String(),
	} {
		if value != "" {
			data[key] = value
		}
	}
	return data
}

func sizeOf(data map[string]string) int {
	size := 0
	for _, value := range data {
		size += len(value)
	}
	return size
}

// uids returns the set of UIDs in the value of a key.
func uids(value string) map[types.UID]bool {
	set := map[types.UID]bool{}
	for uid := range strings.FieldsSeq(value) {
		set[types.UID(uid)] = true
	}
	return set
}

// pendingLines returns the lines of pending objects.
func pendingLines(pending map[inventory.ID]bool) map[string]bool {
	texts := map[string]bool{}
	for id := range pending {
		texts[pendingLine(id)] = true
	}
	return texts
}

// pendingLine returns the line of a pending object, whose name may contain white space.
func pendingLine(id inventory.ID) string {
	return id.GroupKind.String() + "/" + url.PathEscape(id.Name)
}

// pendingOf returns the pending objects in the value of a key.
func pendingOf(value string) map[inventory.ID]bool {
	pending := map[inventory.ID]bool{}
	for line := range strings.FieldsSeq(value) {
		kind, escaped, _ := strings.Cut(line, "/")
		name, _ := url.PathUnescape(escaped) // was escaped by pendingLine
		pending[inventory.ID{GroupKind: schema.ParseGroupKind(kind), Name: name}] = true
	}
	return pending
}

// lines returns the keys of a set, sorted, one in each line.
func lines[K ~string](set map[K]bool) string {
	var text strings.Builder
	for _, key := range slices.Sorted(maps.Keys(set)) {
		text.WriteString(string(key))
		text.WriteByte('\n')
	}
	return text.String()
}

// pendingFor is how long a request that was not answered may take to be executed. The API server gives up after a
// minute, but a network may deliver the request late.
const pendingFor = 5 * time.Minute

// areOver reports whether all requests that an earlier pass may have sent to create an object are over.
func (f *followed) areOver(id inventory.ID, now time.Time) bool {
	since, isKnown := f.unanswered[id]
	if !isKnown {
		f.unanswered[id] = now
	}
	return isKnown && now.Sub(since) > pendingFor
}

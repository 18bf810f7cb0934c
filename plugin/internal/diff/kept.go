package diff

import (
	"fmt"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// noteKept prints which templates of the files are disabled or paused in the cluster, unless the files say the same.
// Which of that an apply keeps depends on who wrote it: kubectl apply removes only what it applied before.
func (d *diff) noteKept(stored []*v1alpha1.NamespaceTemplate) {
	byName := map[string]*v1alpha1.NamespaceTemplate{}
	for _, template := range stored {
		byName[template.Name] = template
	}
	for _, file := range d.templates {
		if former := byName[file.Name]; former != nil {
			for _, note := range keptNotes(file, former) {
				d.Note("%s", note)
			}
		}
	}
}

// keptNotes returns the notes for a template.
func keptNotes(file, stored *v1alpha1.NamespaceTemplate) (notes []string) {
	const annotation = v1alpha1.TemplateApplyAnnotation
	if _, isInFile := file.Annotations[annotation]; !isInFile &&
		stored.Annotations[annotation] == v1alpha1.TemplateApplyDisable {
		notes = append(notes, fmt.Sprintf("template %s is disabled in the cluster; kubectl apply enables it only if "+
			"kubectl apply disabled it: compared as if it were enabled", file.Name))
	}
	if !isPaused(file) && isPaused(stored) {
		note := fmt.Sprintf("the rollout of template %s is paused in the cluster; kubectl apply resumes it only if "+
			"the file sets spec.rollout.paused to false or kubectl apply paused it: compared as if it were resumed",
			file.Name)
		// kubectl apply may keep a stored revocation that the file does not have.
		if !file.Spec.Rollout.KeepsRevoked() && !stored.Spec.Rollout.KeepsRevoked() {
			note += "; a pause does not delay the end of grants that the file removes"
		}
		notes = append(notes, note)
	}
	return notes
}

// isPaused reports whether changes of a template wait until its rollout is resumed.
func isPaused(template *v1alpha1.NamespaceTemplate) bool {
	return template.Spec.Rollout != nil && template.Spec.Rollout.Paused
}

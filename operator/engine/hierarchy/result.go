package hierarchy

// Result is a loaded tree, and what is wrong with it.
type Result struct {
	Tree *Tree
	// Violations and Warnings are the first thousand of each by path and line.
	Violations []Violation
	Warnings   []Warning
	// ViolationCount and WarningCount count all.
	ViolationCount, WarningCount int
	// Values is how many values its manifests have, of which a field has two.
	Values int
}

// Violation is the violation of a rule.
type Violation struct {
	Rule string `json:"rule"`
	// Path begins with the name of the root. Line is 0 if the violation concerns a whole file or directory.
	Path    string `json:"path"`
	Line    int    `json:"line"`
	Message string `json:"message"`
	Remedy  string `json:"remedy,omitempty"`
}

// Warning is about something that is allowed, but may not have the expected effect.
type Warning struct {
	Path    string `json:"path"`
	Line    int    `json:"line"`
	Message string `json:"message"`
}

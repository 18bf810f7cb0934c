package cli

// ExitFailed is the exit code of a command that failed, where 1 is the code of what it found: in diff and vet, as in
// diff(1).
const ExitFailed = 2

// Exit is an error that ends the process with an exit code other than 1, or without a message.
type Exit struct {
	Code int
	// Err is the message to print. It is nil if the output already says why the code is not 0.
	Err error
}

func (e *Exit) Error() string {
	if e.Err == nil {
		return ""
	}
	return e.Err.Error()
}

// Failed returns an Exit with ExitFailed and the message of err.
func Failed(err error) error { return &Exit{Code: ExitFailed, Err: err} }

// Unwrap returns the error with the message, or nil.
func (e *Exit) Unwrap() error { return e.Err }

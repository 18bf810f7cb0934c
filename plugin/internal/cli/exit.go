package cli

import "errors"

// ExitFailed is the exit code of diff and vet if the command failed. As with diff(1), exit code 1 means that the
// command succeeded and found something: differences or violations.
const ExitFailed = 2

// Exit is an error that ends the process with an exit code other than 1, or without a message.
type Exit struct {
	Code int
	// Err is the error to print. It is nil if the output already explains the exit code.
	Err error
}

func (e *Exit) Error() string {
	if e.Err == nil {
		return ""
	}
	return e.Err.Error()
}

// Failed returns an Exit with the code ExitFailed, which prints err. An Exit without a message keeps none.
func Failed(err error) error {
	if exit, is := errors.AsType[*Exit](err); is && exit.Err == nil {
		return &Exit{Code: ExitFailed}
	}
	return &Exit{Code: ExitFailed, Err: err}
}

// Unwrap returns Err.
func (e *Exit) Unwrap() error { return e.Err }

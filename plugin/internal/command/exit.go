package command

// Exit is an error that ends the process with a code of its own.
type Exit struct {
	Code int
	// Err is what there is to say; nil when everything was said.
	Err error
}

func (e *Exit) Error() string {
	if e.Err == nil {
		return ""
	}
	return e.Err.Error()
}

func (e *Exit) Unwrap() error { return e.Err }

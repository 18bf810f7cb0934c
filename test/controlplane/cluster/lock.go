package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// lockFile is locked while a control plane is built, started or running in a folder. The kernel releases the lock when
// its last holder ends. So it cannot be stale like the number of a process, and while it is locked, its process number
// is safe to signal.
type lockFile struct {
	*os.File
}

func openLock(dir string) (lockFile, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return lockFile{}, err
	}
	file, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	return lockFile{file}, err
}

// tryLock returns false if another process holds the lock.
func (l lockFile) tryLock() (bool, error) {
	err := unix.Flock(int(l.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}

// sign writes the number of this process and the Kubernetes version into the lock.
func (l lockFile) sign(version string) error {
	if err := l.Truncate(0); err != nil {
		return err
	}
	_, err := l.WriteAt(fmt.Appendf(nil, "%d %s\n", os.Getpid(), version), 0)
	return err
}

// holder returns zero values if the lock is not signed yet.
func (l lockFile) holder() (pid int, version string, err error) {
	_, err = fmt.Fscan(io.NewSectionReader(l, 0, 100), &pid, &version)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return 0, "", nil
	}
	return pid, version, err
}

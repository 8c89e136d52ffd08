//go:build !unix

package server

import (
	"errors"
	"time"
)

// processorTime returns errors.ErrUnsupported.
func processorTime() (time.Duration, error) { return 0, errors.ErrUnsupported }

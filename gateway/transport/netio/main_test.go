package netio

import (
	"testing"

	"reseat/gateway/internal/test/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

package main

import (
	"testing"

	"golang.org/x/tools/go/analysis/analysistest"
)

func TestTestsThatCannotFailAreReported(t *testing.T) {
	analysistest.Run(t, analysistest.TestData(), analyzer, "reseat/a")
}

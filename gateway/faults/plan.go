package faults

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"
)

// A Planned is a fault of a plan.
type Planned struct {
	At time.Duration // from the beginning of the plan
	Fault
	// Body is the fault as the control API takes it.
	Body []byte
}

// ParsePlan reads a plan in TOML: tables [[fault]] with the members of a fault, and at. It returns
// them in the order of their times.
func ParsePlan(text []byte) ([]Planned, error) {
	var document struct {
		Fault []map[string]any
	}
	if err := toml.NewDecoder(bytes.NewReader(text)).DisallowUnknownFields().Decode(&document); err != nil {
		var strict *toml.StrictMissingError
		if errors.As(err, &strict) {
			return nil, fmt.Errorf("%s is unknown: want [[fault]] tables alone", strings.Join(strict.Errors[0].Key(), "."))
		}
		return nil, err
	}
	if len(document.Fault) == 0 {
		return nil, errors.New(`want [[fault]] tables, such as at = "10s", fault = "tunnel"`)
	}
	var plan []Planned
	for i, members := range document.Fault {
		p, err := planned(maps.Clone(members))
		if err != nil {
			return nil, fmt.Errorf("fault %d: %w", i+1, err)
		}
		plan = append(plan, p)
	}
	slices.SortStableFunc(plan, func(a, b Planned) int { return cmp.Compare(a.At, b.At) })
	return plan, nil
}

func planned(members map[string]any) (p Planned, err error) {
	at, ok := members["at"].(string)
	if !ok {
		return p, errors.New(`want at, such as at = "10s"`)
	}
	if p.At, err = duration("at", at, 24*time.Hour); err != nil {
		return p, err
	}
	delete(members, "at")
	if p.Body, err = json.Marshal(members); err == nil {
		p.Fault, err = Parse(p.Body)
	}
	return p, err
}

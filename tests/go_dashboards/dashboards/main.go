// Reads dashboards by Grafana's own types, and refuses fields that they do not have, required
// fields that are missing, and values of a wrong type or outside of Grafana's bounds.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

type panels struct {
	Panels []struct {
		Title       string          `json:"title"`
		FieldConfig json.RawMessage `json:"fieldConfig"`
	} `json:"panels"`
}

func main() {
	plugins.RegisterDefaultPlugins()
	failed := false
	for _, path := range os.Args[1:] {
		if problem := check(path); problem != "" {
			failed = true
			fmt.Printf("%s: %s\n", path, problem)
		}
	}
	if failed {
		os.Exit(1)
	}
}

func check(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	var read dashboard.Dashboard
	if problem := text(read.UnmarshalJSONStrict(data)); problem != "" {
		return problem
	}
	var raw panels
	if problem := text(json.Unmarshal(data, &raw)); problem != "" {
		return problem
	}
	for _, panel := range raw.Panels {
		// The strict reader of panels reads this one part leniently.
		var config dashboard.FieldConfigSource
		if problem := text(config.UnmarshalJSONStrict(panel.FieldConfig)); problem != "" {
			return panel.Title + ": " + problem
		}
	}
	return text(read.Validate())
}

// Strict readers return an empty list of errors, which is not nil, where they find none.
func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

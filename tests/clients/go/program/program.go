// Package program is shared by the programs of the tests: numeric arguments, results as lines of JSON, exit at the first error.
package program

import (
	"encoding/json"
	"log"
	"os"
	"strconv"
)

func Number(text string) int {
	value, err := strconv.Atoi(text)
	Must(err)
	return value
}

func Print(result map[string]any) { Must(json.NewEncoder(os.Stdout).Encode(result)) }

func Must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

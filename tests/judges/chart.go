// Fills the files of a chart with Go's text/template, as Helm does: chart.go VALUES.json FILES…
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"strings"
	"text/template"
)

func toYaml(value any) string {
	tree, isTree := value.(map[string]any)
	if !isTree {
		made, _ := json.Marshal(value)
		return string(made)
	}
	lines := []string{}
	for name, one := range tree {
		if _, deeper := one.(map[string]any); deeper {
			lines = append(lines, name+":\n"+indent(2, toYaml(one)))
		} else {
			lines = append(lines, name+": "+toYaml(one))
		}
	}
	sort.Strings(lines)
	return strings.Join(lines, "\n")
}

func indent(width int, text string) string {
	pad := strings.Repeat(" ", width)
	return pad + strings.ReplaceAll(text, "\n", "\n"+pad)
}

func quote(value any) string { return fmt.Sprintf("%q", fmt.Sprint(value)) }

func main() {
	var values any
	given, _ := os.ReadFile(os.Args[1])
	if err := json.Unmarshal(given, &values); err != nil {
		panic(err)
	}
	words := template.FuncMap{"toYaml": toYaml, "indent": indent, "quote": quote}
	for _, name := range os.Args[2:] {
		text, _ := os.ReadFile(name)
		fmt.Println("---")
		made := template.Must(template.New(name).Funcs(words).Option("missingkey=error").Parse(string(text)))
		if err := made.Execute(os.Stdout, values); err != nil {
			panic(err)
		}
	}
}

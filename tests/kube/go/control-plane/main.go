// The components of a Kubernetes control plane and kubectl in one program; the first argument names
// the component to run. etcd is a program of its own.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	_ "time/tzdata"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

var parts = map[string]func() *cobra.Command{
	"kube-apiserver":          apiserver.NewAPIServerCommand,
	"kube-controller-manager": controllers.NewControllerManagerCommand,
	"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	"kubectl":                 kubectl.NewDefaultKubectlCommand,
}

func main() {
	name := filepath.Base(os.Args[0]) // also the name of a link to this program
	if parts[name] == nil && len(os.Args) > 1 {
		name, os.Args = os.Args[1], os.Args[1:]
	}
	part := parts[name]
	if part == nil {
		names := []string{}
		for known := range parts {
			names = append(names, known)
		}
		slices.Sort(names)
		fmt.Fprintln(os.Stderr, "usage: control-plane PART [flags], PART one of", strings.Join(names, ", "))
		os.Exit(2)
	}
	os.Exit(cli.Run(part()))
}

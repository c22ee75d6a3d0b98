// The controller of kubeflow's Spark operator: https://github.com/kubeflow/spark-operator
package main

import (
	"fmt"
	"os"

	"github.com/kubeflow/spark-operator/v2/cmd/operator/controller"
)

func main() {
	if err := controller.NewCommand().Execute(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

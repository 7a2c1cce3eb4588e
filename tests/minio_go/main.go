// Runs one of minio-go's functional tests by its name, or lists the names. ci/minio_go.sh puts their
// source and the table of their names beside this file.
package main

import (
	"fmt"
	"log/slog"
	"os"
)

func main() {
	slog.SetDefault(slog.New(slog.NewJSONHandler(os.Stdout, nil)))
	if len(os.Args) != 2 {
		for name := range tests {
			fmt.Println(name)
		}
		return
	}
	test, found := tests[os.Args[1]]
	if !found {
		fmt.Fprintln(os.Stderr, "no test has this name:", os.Args[1])
		os.Exit(2)
	}
	test()
}

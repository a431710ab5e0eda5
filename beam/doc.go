// Package beam fits GLMs, sparse GPs and topic models to rows on many machines with Apache Beam, on
// Prism, Dataflow, Flink or Spark.
//
//	post, res, err := beam.FitGLM(ctx, cols, pgsvi.BernoulliLogit{}, nil, &beam.Job{
//		Paths: []string{"gs://bucket/rows/part-*"},
//		Dir:   "gs://bucket/fit",
//		Run:   beamx.Run,
//	})
//
// It is a separate module, so that the library does not depend on Beam. The program examples/beam
// uses it, and its README has the commands for each runner.
//
// # Rounds
//
// A fit consists of a few rounds of pgsvi.Rounds. The first round takes a sample, and GLMs and
// sparse GPs need three or four more. Each round is one Beam job, which reads the state of the
// round and all rows, and writes their sums. This process computes the next state from the sums,
// and ends when it has reached Job.Goal. States and sums are files in Job.Dir, so all machines must
// have access to this folder. A job has only one round because Beam has no loops: a job with
// several rounds could not end early, and a failure would lose all of them.
//
// After each round the fit writes a checkpoint. If a process or a worker is killed, run the same
// fit with Job.Resume. It repeats only the interrupted round, and its result has the same bits.
//
// # Rows
//
// Rows are in part files. The elements of Beam are ranges of blocks in a file, and the worker that
// gets an element reads its rows. The first bytes and the name of a file select its format:
//
//   - Row files of data.RowWriter are binary and have checksums. Workers can read any part of them,
//     so one file may be split. They are many times faster than text.
//   - Parquet files have columns of numbers. The last column is the response.
//   - CSV files (.csv, .csv.gz) are read as by data.ReadCSV, with the response in the last column.
//     Only the first line that is not blank may have names. A later line with names is an error,
//     or is skipped.
//   - Other files are LIBSVM, or lda-c for documents.
//
// Text may be compressed with gzip. Text files, Parquet files, and row files that are not local are
// read from beginning to end by one worker, so write many part files.
//
// # The same bits
//
// A block is Job.Block consecutive rows of a file. The result depends on the rows, the order of the
// files by name, and the blocks, but not on shards, runners, machines or retries: the saved
// posterior has the same bytes on every machine with the same GOARCH.
package beam

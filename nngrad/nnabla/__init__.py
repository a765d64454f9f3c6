"""What exists for programs written for nnabla and Chainer: their protocols for functions, and tables of their names."""

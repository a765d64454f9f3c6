"""What `nngrad demo` runs: a Wasserstein GAN whose critic is held by a gradient penalty draws digits."""

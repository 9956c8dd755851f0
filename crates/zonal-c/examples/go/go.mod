module zonal-example

go 1.19

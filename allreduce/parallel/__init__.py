"""Models split over a mesh: layers cut, stages in a pipeline, replicas; and the parameter server beside them.

Pure, without MPI: `orders` (who works when in a pipeline), `balance` (who gets how much). On arrays: `server`
(parameter servers), `outer` (local steps, then an outer one). With PyTorch: `tensor`, `pipeline`, `cutting` (stages by
measured time), `replicas`, `sampling` (samples shared out unequally).
"""

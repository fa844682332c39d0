/**
 * `troupe tasks image FILE.tar --name NAME`: unpacks an image into the store of the driver `oci`.
 *
 * in   an archive of `docker save`, an OCI layout, or a root file system        out  a line on stderr
 */
import type { Command } from 'commander'
import { importImage, openStore } from '../../environments'
import { TroupeError } from '../../runtime/errors'

export function registerImage(tasks: Command): void {
  tasks
    .command('image')
    .description('unpack an image for the driver oci: an archive of docker save, an OCI layout, or a root file system')
    .argument('<file>', 'tar archive')
    .requiredOption('--name <name>', 'name of the image, as Dockerfiles and task.toml write it: debian:bookworm-slim')
    .option('--store <dir>', 'directory of images and environments; default: <TROUPE_HOME>/environments')
    .action(async (file: string, { name, store }: { readonly name: string; readonly store?: string }) => {
      if (process.geteuid?.() !== 0)
        throw new TroupeError('environment.unavailable', {
          boundary: 'environment',
          retriable: false,
          message: 'only root can unpack an image, since its files belong to several users',
          hint: 'run the command as root',
        })
      const began = performance.now()
      await importImage(openStore(store), file, name)
      process.stderr.write(`image ${name} unpacked in ${((performance.now() - began) / 1000).toFixed(1)} s\n`)
    })
}
